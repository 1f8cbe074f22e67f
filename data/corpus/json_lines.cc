#include "data/corpus/json_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

namespace bert {
namespace {

constexpr size_t kMostNames = 20;  // of fields in a message

/// Takes the string at one path from the events of a parser.
class FieldFinder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  FieldFinder(std::string_view field, std::string& text) : field_(field), text_(text) {
    while (true) {
      const size_t dot = field.find('.');
      path_.emplace_back(field.substr(0, dot));
      if (dot == std::string_view::npos) break;
      field.remove_prefix(dot + 1);
    }
  }

  /// Empty if the field was found.
  [[nodiscard]] std::string error() const {
    if (!error_.empty() || found_) return error_;
    std::string names;
    for (const std::string& name : names_) names.append(names.empty() ? "" : ", ").append(name);
    return fmt::format("no field {}; the object has {}", field_, names.empty() ? "no fields" : names);
  }

  bool null() override { return other("null"); }
  bool boolean(bool) override { return other("true or false"); }
  bool number_integer(number_integer_t) override { return other("a number"); }
  bool number_unsigned(number_unsigned_t) override { return other("a number"); }
  bool number_float(number_float_t, const string_t&) override { return other("a number"); }
  bool binary(binary_t&) override { return other("binary"); }
  bool string(string_t& value) override {
    if (!at_field()) return other("a string");
    if (found_) return fail(fmt::format("the field {} is there twice", field_));
    found_ = true;
    text_ = std::move(value);
    return true;
  }
  bool start_object(size_t) override {
    if (at_field()) return other("an object");
    if (depth_ == 0 || (depth_ == on_path_ && key_matches_)) {
      ++on_path_;
      key_matches_ = false;
    }
    ++depth_;
    return true;
  }
  bool start_array(size_t) override {
    if (!other("a list")) return false;
    ++depth_;
    return true;
  }
  bool key(string_t& name) override {
    if (depth_ == on_path_) key_matches_ = name == path_[on_path_ - 1];
    if (depth_ == 1 && names_.size() < kMostNames) names_.push_back(name);
    return true;
  }
  bool end_object() override { return end_container(); }
  bool end_array() override { return end_container(); }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("no JSON object: it is wrong at byte {}", position));
  }

 private:
  [[nodiscard]] bool at_field() const {
    return depth_ > 0 && depth_ == on_path_ && key_matches_ && on_path_ == path_.size();
  }

  /// A value that may be anywhere but at the field or in place of the whole object.
  bool other(const char* kind) {
    if (depth_ == 0) return fail(fmt::format("no JSON object, but {}", kind));
    return at_field() ? fail(fmt::format("the field {} is {}, not a string", field_, kind)) : true;
  }
  bool end_container() {
    if (depth_ == on_path_) {
      --on_path_;
      key_matches_ = false;
    }
    --depth_;
    return true;
  }
  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }

  const std::string_view field_;
  std::string& text_;
  std::vector<std::string> path_, names_;  // names_: of the outermost object's fields
  std::string error_;
  size_t depth_ = 0;          // of open objects and lists
  size_t on_path_ = 0;        // of the innermost open object on the way to the field
  bool key_matches_ = false;  // the last key of that object is the next part of the path
  bool found_ = false;
};

/// The UTF-16 unit of an escape \uXXXX at the start of `text`.
std::optional<uint16_t> unit_of(std::string_view text) {
  uint16_t unit = 0;
  if (text.size() < 6 || !text.starts_with("\\u") ||
      std::from_chars(text.data() + 2, text.data() + 6, unit, 16).ptr != text.data() + 6)
    return std::nullopt;
  return unit;
}

bool is_high(uint16_t unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low(uint16_t unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

/// `line` as the RFC has JSON: null for NaN, Infinity and -Infinity, and U+FFFD for lone surrogates, which are counted.
std::string strict_json(std::string_view line, int64_t& surrogates) {
  std::string strict;
  bool in_string = false;
  while (!line.empty()) {
    size_t taken = 1;
    std::string_view instead = line.substr(0, 1);
    if (in_string && line.front() == '\\') {
      taken = std::min<size_t>(2, line.size());
      if (const auto unit = unit_of(line)) {
        const auto next = unit_of(line.substr(6));
        const bool pair = is_high(*unit) && next && is_low(*next);
        taken = pair ? 12 : 6;
        const bool lone = !pair && (is_high(*unit) || is_low(*unit));
        surrogates += lone ? 1 : 0;
        instead = lone ? "\\ufffd" : line.substr(0, taken);
      } else {
        instead = line.substr(0, taken);
      }
    } else if (line.front() == '"') {
      in_string = !in_string;
    } else if (!in_string) {
      for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
        if (!line.starts_with(word)) continue;
        taken = word.size();
        instead = "null";
      }
    }
    strict += instead;
    line.remove_prefix(taken);
  }
  return strict;
}

}  // namespace

std::string read_json_field(std::string_view line, std::string_view field, std::string& text,
                            int64_t& lone_surrogates) {
  const auto read = [&](std::string_view json) {
    FieldFinder finder(field, text);
    nlohmann::json::sax_parse(json.begin(), json.end(), &finder);
    return finder.error();
  };
  std::string error = read(line);  // which takes none of the two
  if (error.empty()) return error;
  int64_t lone = 0;
  const std::string strict = strict_json(line, lone);
  if (strict == line) return error;
  lone_surrogates += lone;
  return read(strict);
}

int64_t count_lone_surrogates(std::string_view line) {
  int64_t surrogates = 0;
  if (line.find("\\ud") != std::string_view::npos || line.find("\\uD") != std::string_view::npos)
    strict_json(line, surrogates);
  return surrogates;
}

}  // namespace bert
