// A JSON text as a tree that remembers where every value stands.
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
  std::string name;                 // a file, or what stands for one in messages
  std::filesystem::path directory;  // paths in it are relative to this; empty = they stay as they are
  bool words = false;               // command line or environment: a string needs no quotes, and there are no lines
};

struct JsonPlace {
  std::shared_ptr<const JsonSource> source;
  int64_t line = 0, column = 0;
  /// "file:line:column", or the name alone where there are no lines.
  [[nodiscard]] std::string str() const;
};

struct JsonMember;

struct JsonNode {
  enum class Kind { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };
  Kind kind = Kind::kNull;
  JsonPlace place;
  std::string text;  // a string's value; otherwise as written
  int64_t integer = 0;
  bool fits = true;  // kInteger: in int64; kNumber: false when it is too near to 0 for a double
  double number = 0;
  std::vector<JsonNode> items;
  std::vector<JsonMember> members;

  [[nodiscard]] JsonNode* find(const std::string& key);
  [[nodiscard]] const JsonNode* find(const std::string& key) const { return const_cast<JsonNode*>(this)->find(key); }
  /// For messages: the value, shortened.
  [[nodiscard]] std::string got() const;
};

struct JsonMember {
  std::string key;
  JsonPlace place;
  JsonNode value;
};

struct JsonProblems {
  std::vector<ConfigProblem> list;
  bool incomplete = false;  // a text ended early, or what it extends was not read: what is missing may stand there
};

inline constexpr int kMaxJsonDepth = 64;
inline constexpr int64_t kMaxJsonBytes = int64_t{16} << 20;

/// Parses `text`; comments are allowed. Syntax errors, duplicate keys, nesting over 64 and numbers beyond double go
/// into `problems`; after a syntax error the tree is what stood before it. The root is always an object.
JsonNode parse_json(const std::string& text, const std::shared_ptr<const JsonSource>& source, JsonProblems& problems);

/// One value of a command line: JSON when it is, otherwise a string. Text that begins like a string, list or object
/// must be one.
JsonNode parse_json_word(const std::string& text, std::shared_ptr<const JsonSource> source, const std::string& pointer,
                         JsonProblems& problems);

/// Members of objects merge, everything else in `over` replaces what is in `base`.
void merge_json(JsonNode& base, JsonNode over);

/// A key as a part of a JSON pointer (RFC 6901), shortened when it is long.
std::string pointer_part(const std::string& key);

}  // namespace bert
