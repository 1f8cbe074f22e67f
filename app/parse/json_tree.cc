#include "app/parse/json_tree.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "app/parse/bounded_json.h"
#include "app/parse/underflow.h"
#include "app/system/errors.h"

namespace bert {
namespace {

constexpr size_t kLongestShown = 60;

std::string shorten(std::string text) {
  if (text.size() <= kLongestShown) return text;
  size_t end = kLongestShown;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // do not cut a UTF-8 character
  text.resize(end);
  return text + "...";
}

/// Finds the line and column of each token that the parser reports, in the same order. It skips the characters between
/// the tokens.
class TokenPositions {
 public:
  explicit TokenPositions(std::string_view text) : text_(text) {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") offset_ = line_start_ = 3;  // byte order mark
  }

  /// Marks the next token and moves past it.
  void next() {
    skip(" \t\r\n,:");
    mark();
    token_start_ = offset_;
    const char first = peek();
    if (first == '"') {
      for (advance(); offset_ < text_.size() && peek() != '"'; advance()) {
        if (peek() == '\\') advance();
      }
      advance();
    } else if (first == '-' || is_digit(first)) {
      pass_number();
    } else {
      const size_t bytes = first == 'f' ? 5 : first == 't' || first == 'n' ? 4 : 1;  // false, true, null, {}[]
      for (size_t i = 0; i < bytes; ++i) advance();
    }
  }
  /// Marks the place where the next token should be, without moving past it. One `separator` may precede that place.
  void stop(char separator) {
    skip(kWhiteSpace);
    if (separator != '\0' && peek() == separator) {
      advance();
      skip(kWhiteSpace);
    }
    mark();
  }
  /// Marks the end of the text.
  void to_end() {
    while (offset_ < text_.size()) advance();
    mark();
  }

  /// After next(): the whole word at that token if more characters follow the token directly; otherwise empty. In 010,
  /// for example, the parser takes the first 0 for a number.
  [[nodiscard]] std::string run_on() const {
    if (offset_ >= text_.size() || ends_value(peek())) return "";
    size_t end = offset_;
    while (end < text_.size() && !ends_value(text_[end])) ++end;
    return std::string(text_.substr(token_start_, end - token_start_));
  }

  [[nodiscard]] int64_t line() const { return token_line_; }
  [[nodiscard]] int64_t column() const { return token_column_; }

 private:
  void mark() {
    token_line_ = line_;
    token_column_ = static_cast<int64_t>(offset_ - line_start_) + 1;
  }
  [[nodiscard]] char peek(size_t ahead = 0) const {
    return offset_ + ahead < text_.size() ? text_[offset_ + ahead] : '\0';
  }
  void advance() {
    if (offset_ >= text_.size()) return;
    if (text_[offset_++] == '\n') {
      ++line_;
      line_start_ = offset_;
    }
  }
  static constexpr std::string_view kWhiteSpace = " \t\r\n";
  static bool ends_value(char c) { return std::string_view(" \t\r\n,:{}[]/\"").find(c) != std::string_view::npos; }
  static bool is_digit(char c) { return c >= '0' && c <= '9'; }

  /// Moves past a number (RFC 8259, section 6), which the parser has found here.
  void pass_number() {
    const auto pass_digits = [&] {
      while (is_digit(peek())) advance();
    };
    if (peek() == '-') advance();
    if (peek() == '0') {
      advance();
    } else {
      pass_digits();
    }
    if (peek() == '.') {
      advance();
      pass_digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      advance();
      if (peek() == '+' || peek() == '-') advance();
      pass_digits();
    }
  }

  /// Moves past `characters` and past comments that are closed.
  void skip(std::string_view characters) {
    for (;;) {
      if (offset_ < text_.size() && characters.find(peek()) != std::string_view::npos) {
        advance();
      } else if (peek() == '/' && peek(1) == '/') {
        while (offset_ < text_.size() && peek() != '\n') advance();
      } else if (peek() == '/' && peek(1) == '*') {
        const size_t end = text_.find("*/", offset_ + 2);
        if (end == std::string_view::npos) return;
        while (offset_ < end + 2) advance();
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  size_t offset_ = 0, line_start_ = 0;
  size_t token_start_ = 0;  // offset of the token that next() marked
  int64_t line_ = 1, token_line_ = 1, token_column_ = 1;
};

/// The message of nlohmann's parser, without its position and without the text that it has read.
std::string explain(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  constexpr int kOutOfRangeNumber = 406;  // nlohmann's exception id
  if (error.id == kOutOfRangeNumber) {
    const size_t begin = text.find('\'') + 1;
    return "number does not fit a double: " + text.substr(begin, text.rfind('\'') - begin);
  }
  const size_t begin = text.find("syntax error");
  std::string message = begin == std::string::npos ? text.substr(text.find(']') + 1) : text.substr(begin);
  const size_t token = message.find("; last read: '"), expected = message.rfind("; expected ");
  if (token == std::string::npos) return message;
  return message.substr(0, token) + (expected == std::string::npos || expected < token ? "" : message.substr(expected));
}

/// Builds the tree. nlohmann's parser calls a member function for each token.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(const std::string& text, std::shared_ptr<const JsonSource> source, JsonProblems& problems)
      : positions_(text), source_(std::move(source)), problems_(problems) {}

  JsonNode root;

  bool null() override {
    leaf(JsonNode::Kind::kNull, "null");
    return true;
  }
  bool boolean(bool value) override {
    leaf(JsonNode::Kind::kBoolean, value ? "true" : "false").integer = value;
    return true;
  }
  bool number_integer(number_integer_t value) override {
    JsonNode& node = leaf(JsonNode::Kind::kInteger, std::to_string(value));
    node.integer = value;
    node.number = static_cast<double>(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    JsonNode& node = leaf(JsonNode::Kind::kInteger, std::to_string(value));
    node.fits = value <= static_cast<uint64_t>(INT64_MAX);
    node.integer = node.fits ? static_cast<int64_t>(value) : 0;
    node.number = static_cast<double>(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& text) override {
    const bool whole =
        text.find_first_of(".eE") == std::string::npos;  // the parser reports an integer beyond uint64 as a float
    JsonNode& node = leaf(whole ? JsonNode::Kind::kInteger : JsonNode::Kind::kNumber, text);
    node.fits = !whole && !underflows(text, value);
    node.number = value;
    return true;
  }
  bool string(string_t& value) override {
    leaf(JsonNode::Kind::kString, value);
    return true;
  }
  bool binary(binary_t&) override { return false; }  // JSON text has no binary values
  bool start_object(std::size_t) override { return open(JsonNode::Kind::kObject); }
  bool start_array(std::size_t) override { return open(JsonNode::Kind::kArray); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    positions_.next();
    after_value_ = false;
    key_ = name;
    key_pending_ = true;
    separator_ = ':';
    key_place_ = place();
    const JsonNode& object = *open_.back().node;
    if (const JsonNode* earlier = object.find(name)) {
      problem(pointer(), "duplicate key; the first is at " + earlier->place.str() + "; keep one of them");
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception& error) override {
    problems_.incomplete = true;
    if (const std::string text = after_value_ ? positions_.run_on() : ""; !text.empty()) {
      problem(last_pointer(),
              (is_number_with_leading_zero(text) ? "syntax error: a number does not begin with 0 and another digit: "
                                                 : "syntax error: this is no value of JSON: ") +
                  as_text(shorten(text)));
      drop_last();
      return false;
    }
    positions_.stop(separator_);
    problem(key_pending_ ? pointer() : open_.empty() ? "" : open_.back().pointer, explain(error));
    return false;
  }

 private:
  struct Open {
    JsonNode* node;
    std::string pointer;
  };

  [[nodiscard]] JsonPlace place() const { return {source_, positions_.line(), positions_.column()}; }

  static bool is_number_with_leading_zero(std::string_view text) {
    if (text.starts_with('-')) text.remove_prefix(1);
    return text.size() > 1 && text[0] == '0' && text[1] >= '0' && text[1] <= '9';
  }

  /// The JSON pointer of the last value, which is a leaf.
  [[nodiscard]] std::string last_pointer() const {
    if (open_.empty()) return "";
    const Open& parent = open_.back();
    if (parent.node->kind == JsonNode::Kind::kArray)
      return parent.pointer + "/" + std::to_string(parent.node->items.size() - 1);
    return pointer();
  }

  /// Removes the last value, which is a leaf: the parser has read a part of a word only.
  void drop_last() {
    if (open_.empty()) return;
    JsonNode& parent = *open_.back().node;
    if (parent.kind == JsonNode::Kind::kArray) {
      parent.items.pop_back();
    } else {
      parent.members.pop_back();
    }
  }

  [[nodiscard]] std::string pointer() const {
    const Open& parent = open_.back();
    if (parent.node->kind == JsonNode::Kind::kArray)
      return parent.pointer + "/" + std::to_string(parent.node->items.size());
    return parent.pointer + "/" + pointer_part(key_);
  }

  void problem(const std::string& at, const std::string& message) {
    problems_.list.push_back({place().str(), at, message});
  }

  JsonNode& add(JsonNode::Kind kind, std::string text) {
    key_pending_ = false;
    JsonNode node;
    node.kind = kind;
    node.text = std::move(text);
    node.place = place();
    if (open_.empty()) {
      root = std::move(node);
      return root;
    }
    JsonNode& parent = *open_.back().node;
    if (parent.kind == JsonNode::Kind::kArray) {
      parent.items.push_back(std::move(node));
      return parent.items.back();
    }
    parent.members.push_back({key_, key_place_, std::move(node)});
    return parent.members.back().value;
  }
  JsonNode& leaf(JsonNode::Kind kind, std::string text) {
    positions_.next();
    separator_ = ',';
    after_value_ = kind != JsonNode::Kind::kString;
    return add(kind, std::move(text));
  }
  bool open(JsonNode::Kind kind) {
    positions_.next();
    if (open_.size() >= kMaxJsonDepth) {
      problem("", "nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
      problems_.incomplete = true;
      return false;
    }
    after_value_ = false;
    const std::string at = open_.empty() ? "" : pointer();
    JsonNode& node = add(kind, kind == JsonNode::Kind::kObject ? "an object" : "a list");
    open_.push_back({&node, at});
    separator_ = '\0';
    return true;
  }
  bool close() {
    positions_.next();
    after_value_ = false;
    open_.pop_back();
    separator_ = open_.empty() ? '\0' : ',';
    return true;
  }

  TokenPositions positions_;
  std::shared_ptr<const JsonSource> source_;
  JsonProblems& problems_;
  std::vector<Open> open_;  // the pointers stay valid: a list grows only while no child of it is open
  std::string key_;
  bool key_pending_ = false;  // true between a key and its value
  bool after_value_ = false;  // true if the last token is a number or a literal
  char separator_ = '\0';     // character that may precede the next token
  JsonPlace key_place_;
};

}  // namespace

std::string JsonPlace::str() const {
  if (!source) return "default";
  if (line == 0 || source->words) return source->name;
  return source->name + ":" + std::to_string(line) + ":" + std::to_string(column);
}

JsonNode* JsonNode::find(const std::string& key) {
  const auto found = std::ranges::find_if(members, [&](const JsonMember& member) { return member.key == key; });
  return found == members.end() ? nullptr : &found->value;
}

std::string JsonNode::got() const {
  if (kind == Kind::kString) return as_text(shorten(text));
  return shorten(text);
}

JsonNode parse_json(const std::string& text, const std::shared_ptr<const JsonSource>& source, JsonProblems& problems) {
  JsonNode empty;
  empty.kind = JsonNode::Kind::kObject;
  empty.text = "an object";
  empty.place = {source, 1, 1};
  if (static_cast<int64_t>(text.size()) > kMaxJsonBytes) {
    problems.list.push_back({source->name, "", "larger than 16 MB; this is not a configuration"});
    problems.incomplete = true;
    return empty;
  }
  // The parser takes a NUL for the end of the text and would ignore the rest.
  if (const size_t nul = text.find('\0'); nul != std::string::npos) {
    TokenPositions positions(std::string_view(text).substr(0, nul));
    positions.to_end();
    problems.list.push_back({JsonPlace{source, positions.line(), positions.column()}.str(), "",
                             "a NUL character, which no JSON has: the file is damaged, or is none"});
    problems.incomplete = true;
    return empty;
  }
  TreeBuilder builder(text, source, problems);
  const size_t before = problems.list.size();
  nlohmann::json::sax_parse(text, &builder, nlohmann::json::input_format_t::json, /*strict=*/true,
                            /*ignore_comments=*/true);
  if (builder.root.kind == JsonNode::Kind::kObject) return std::move(builder.root);
  if (problems.list.size() == before) {
    problems.list.push_back({builder.root.place.str(), "", "want an object {...}, got " + builder.root.got()});
    problems.incomplete = true;
  }
  return empty;
}

JsonNode parse_json_word(const std::string& text, std::shared_ptr<const JsonSource> source, const std::string& pointer,
                         JsonProblems& problems) {
  JsonProblems found;
  TreeBuilder builder(text, source, found);
  const bool parsed = static_cast<int64_t>(text.size()) <= kMaxJsonBytes &&
                      nlohmann::json::sax_parse(text, &builder, nlohmann::json::input_format_t::json, true, false);
  if (parsed && builder.root.kind != JsonNode::Kind::kString) {
    if (builder.root.items.empty() && builder.root.members.empty())
      builder.root.text = text;  // as written, in case the field is a string
  }
  const bool must_parse = !text.empty() && std::string_view("{[\"").find(text.front()) != std::string_view::npos;
  if (!found.list.empty() && (parsed || must_parse)) {
    for (ConfigProblem& problem : found.list)
      problems.list.push_back({source->name, pointer + problem.pointer, problem.message});
  }
  if (parsed) return std::move(builder.root);
  JsonNode node;
  node.kind = JsonNode::Kind::kString;
  node.place = {std::move(source), 0, 0};
  node.text = text;
  return node;
}

void merge_json(JsonNode& base, JsonNode over) {
  if (base.kind != JsonNode::Kind::kObject || over.kind != JsonNode::Kind::kObject) {
    base = std::move(over);
    return;
  }
  for (JsonMember& member : over.members) {
    if (JsonNode* present = base.find(member.key)) {
      merge_json(*present, std::move(member.value));
    } else {
      base.members.push_back(std::move(member));
    }
  }
}

std::string pointer_part(const std::string& key) {
  std::string part;
  for (const char c : shorten(key)) {
    if (c == '~') {
      part += "~0";
    } else if (c == '/') {
      part += "~1";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      part += '?';  // a control character would break the line of a message
    } else {
      part += c;
    }
  }
  return part;
}

}  // namespace bert
