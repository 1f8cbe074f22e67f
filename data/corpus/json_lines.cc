#include "data/corpus/json_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
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

}  // namespace

std::string read_json_field(std::string_view line, std::string_view field, std::string& text) {
  FieldFinder finder(field, text);
  nlohmann::json::sax_parse(line.begin(), line.end(), &finder);
  return finder.error();
}

}  // namespace bert
