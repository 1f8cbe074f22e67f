// A JSON text as a tree that has the line and column of every value. nlohmann/json 3.11, the version of Debian 12, does
// not keep the positions of values, so this tree does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/system/errors.h"

namespace bert {

struct JsonSource {
  std::string name;                 // name in messages: a file, or the kind of source
  std::filesystem::path directory;  // directory that relative paths start from; empty: they stay relative
  bool saved = false;               // written by a program, perhaps of the release before
  bool words = false;               // command line or environment: strings need no quotes, and places have no line
};

struct JsonPlace {
  std::shared_ptr<const JsonSource> source;
  int64_t line = 0, column = 0;
  /// "file:line:column", or the name alone for a source without lines.
  [[nodiscard]] std::string str() const;
};

struct JsonMember;

struct JsonNode {
  enum class Kind { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  JsonPlace place;
  std::string text;  // value of a string; other values as written
  int64_t integer = 0;
  bool fits = true;  // kInteger: fits int64; kNumber: false if a double would round it to 0
  double number = 0;
  std::vector<JsonNode> items;
  std::vector<JsonMember> members;

  [[nodiscard]] JsonNode* find(const std::string& key);
  [[nodiscard]] const JsonNode* find(const std::string& key) const { return const_cast<JsonNode*>(this)->find(key); }
  /// The value for messages, shortened.
  [[nodiscard]] std::string got() const;
};

struct JsonMember {
  std::string key;
  JsonPlace place;
  JsonNode value;
};

struct JsonProblems {
  std::vector<ConfigProblem> list;
  bool incomplete = false;  // a text or a file that it extends was not read to the end: values may be missing
};

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonBytes = int64_t{16} << 20;

/// Parses `text`; comments are allowed. Adds syntax errors, duplicate keys, nesting over kMaxJsonDepth and numbers
/// beyond double to `problems`. After a syntax error the tree has the values before the error. The root is always an
/// object.
JsonNode parse_json(const std::string& text, const std::shared_ptr<const JsonSource>& source, JsonProblems& problems);

/// Parses a value from a command line: JSON if `text` is JSON, otherwise a string. Text that begins with ", [ or { must
/// be JSON.
JsonNode parse_json_word(const std::string& text, std::shared_ptr<const JsonSource> source, const std::string& pointer,
                         JsonProblems& problems);

/// Merges `over` into `base`: objects member by member; any other value in `over` replaces the value in `base`.
void merge_json(JsonNode& base, JsonNode over);

/// `key` as a part of a JSON pointer (RFC 6901); a long key is shortened.
std::string pointer_part(const std::string& key);

}  // namespace bert
