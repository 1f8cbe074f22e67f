#include "data/wikitext/prose_cleaner.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "data/text/unicode.h"
#include "data/wikitext/entities.h"
#include "data/wikitext/markup_scanner.h"
#include "data/wikitext/tags.h"
#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

// Signs that are text where kProtected says so, and, but for &, where a reference gives them. While a text is cleaned,
// U+FDD0 and its neighbours, which no text has, stand for them.
constexpr std::string_view kSigns = "[]{}|<>&_:";
constexpr std::string_view kStandIn = "\xEF\xB7";  // the first two bytes of U+FDD0 to U+FDEF
constexpr unsigned char kFirstStandIn = 0x90;      // the third byte of U+FDD0

/// Appends `c`, or the stand-in for a sign.
void append_as_text(char c, std::string& out) {
  const size_t sign = kSigns.find(c);
  if (sign == kNone) {
    out += c;
  } else {
    out += kStandIn;
    out += static_cast<char>(kFirstStandIn + sign);
  }
}

/// Appends the text of a reference. What & begins may be a reference itself, which was escaped twice.
void append_reference(std::string_view value, std::string& out) {
  if (value == "&") {
    out += value;
  } else {
    for (const char c : value) append_as_text(c, out);
  }
}

/// `text` without the scanner's bytes, and with stand-ins for protected signs.
std::string without_marks(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  bool is_protected = false;
  for (const char c : text) {
    if (c == kProtected || c == kSeparator || c == kCitation) {
      is_protected = c == kProtected;
      continue;
    }
    if (std::exchange(is_protected, false)) {
      append_as_text(c, plain);
    } else {
      plain += c;
    }
  }
  return plain;
}

/// `text` with the signs in place of their stand-ins.
std::string with_signs(const std::string& text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t next = std::min(text.find(kStandIn, at), text.size());
    out.append(text, at, next - at);
    at = next;
    if (at == text.size()) break;
    const size_t sign = static_cast<unsigned char>(text[at + 2]) - kFirstStandIn;
    sign < kSigns.size() ? out += kSigns[sign] : out.append(text, at, 3);
    at += 3;
  }
  return out;
}

/// `text` without the scanner's bytes and with its references decoded, also those that were escaped twice.
std::string decoded(std::string_view text) {
  constexpr int kMostTimes = 4;
  std::string plain = without_marks(text), out;
  for (int i = 0; i < kMostTimes && plain.find('&') != kNone; ++i) {
    out.clear();
    decode_references(plain, out, append_reference);
    if (out == plain) break;
    plain.swap(out);
  }
  return plain;
}

/// Drops signs of markup.
class SignRemover {
 public:
  explicit SignRemover(std::string_view text) : in_(text) { out_.reserve(text.size()); }

  std::string run() {
    // Lead bytes: of U+0080 to U+00BF, U+2000 to U+2FFF, U+3000 to U+3FFF, U+F000 to U+FFFF.
    static constexpr ByteSet kSpecial = [] {
      ByteSet set = byte_set("{}[]|'<:_ \xC2\xE2\xE3\xEF\x7F");
      for (size_t control = 0; control < ' '; ++control) set[control] = true;
      return set;
    }();
    while (at_ < in_.size()) {
      at_ = copy_until(kSpecial, in_, at_, out_);
      if (at_ < in_.size()) special(in_[at_]);
    }
    return std::move(out_);
  }

 private:
  void special(char c) {
    switch (c) {
      case '{':
      case '}':
      case '[':
      case ']':
        return bracket(c);
      case '\'':
        return quotes();
      case '|':
        return bar();
      case '<':
        return tag();
      case ':':
        return colon();
      case '_':
        return underscore();
      default:
        return character();
    }
  }

  [[nodiscard]] std::string_view rest() const { return in_.substr(at_); }

  /// Double brackets are markup; single ones are text, unless they would become double here.
  void bracket(char c) {
    const size_t count = run_length(in_, c, at_);
    at_ += count;
    const bool closes_table = c == '}' && out_.ends_with('|');
    if (count == 1 && !out_.ends_with(c) && !closes_table) out_ += c;
  }

  void quotes() {
    const size_t count = run_length(in_, '\'', at_);
    at_ += count;
    if (count == 1 && !out_.ends_with('\'')) out_ += '\'';
  }

  void bar() {
    ++at_;
    constexpr std::string_view kThumb = "thumb";
    if (out_.ends_with(kThumb)) {
      out_.erase(out_.size() - kThumb.size());
    } else if (out_.ends_with('{')) {
      out_.pop_back();
    } else if (rest().starts_with('}')) {
      ++at_;
    } else {
      out_ += '|';
    }
  }

  void tag() {
    constexpr size_t kLongest = 300;  // bytes of a tag that the scanner could not read
    size_t end = at_ + 1;
    const bool closing = end < in_.size() && in_[end] == '/';
    if (closing) ++end;
    std::string name;
    while (end < in_.size() && name.size() <= kLongestTag && (is_ascii_letter(in_[end]) || is_ascii_digit(in_[end])))
      name += ascii_lower(in_[end++]);
    const size_t close = in_.substr(end, kLongest).find_first_of("<>");
    const bool known = closing || tag_kind(name) != TagKind::kUnknown;
    if (known && close != kNone && in_[end + close] == '>') {
      at_ = end + close + 1;
    } else {
      if (!closing && name != "ref") out_ += '<';
      at_ += closing ? 2 : 1;
    }
  }

  void colon() {
    constexpr std::string_view kCategory = "Category";
    if (rest().starts_with("://")) {
      size_t scheme = out_.size();
      while (scheme > 0 && is_ascii_letter(out_[scheme - 1])) --scheme;
      const std::string name = ascii_lower(std::string_view(out_).substr(scheme));
      if (name.ends_with("http") || name.ends_with("https") || name.ends_with("ftp")) {
        out_.erase(out_.size() - (name.ends_with("https") ? 5 : name.ends_with("http") ? 4 : 3));
        return url();
      }
    }
    ++at_;
    if (out_.ends_with(kCategory)) {
      out_.erase(out_.size() - kCategory.size());
    } else {
      out_ += ':';
    }
  }

  void url() {
    // Lead bytes of East Asian text end a URL too.
    static constexpr ByteSet kEnd = byte_set("<>\"[]{}| \t\n\xE3\xE4\xE5\xE6\xE7\xE8\xE9\xEF");
    size_t end = at_;
    while (end < in_.size() && !kEnd[static_cast<uint8_t>(in_[end])]) ++end;
    const bool has_bracket = in_.substr(at_, end - at_).find('(') != kNone;
    while (end > at_ + 3 &&
           (std::string_view(".,;:!?'").find(in_[end - 1]) != kNone || (in_[end - 1] == ')' && !has_bracket)))
      --end;
    at_ = end;
  }

  /// __NOTOC__: two underscores, capitals of any script, two underscores.
  void underscore() {
    constexpr size_t kLongest = 80;
    if (rest().starts_with("__")) {
      const std::string_view word = in_.substr(at_ + 2, kLongest);
      const size_t end = word.find("__");
      const bool is_switch = end != kNone && end > 0 &&
                             std::none_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(end),
                                          [](char c) { return is_blank(c) || (c >= 'a' && c <= 'z'); });
      if (is_switch) {
        at_ += end + 4;
        return;
      }
    }
    out_ += '_';
    ++at_;
  }

  /// White space, controls and invisible characters.
  void character() {
    const DecodedUtf8 decoded = decode_utf8(rest());
    const char32_t value = decoded.value;
    const auto size = static_cast<size_t>(decoded.bytes);
    // Zero-width joiners (200C, 200D) stay: Persian and Hindi are spelled with them.
    const bool invisible = (value < ' ' && value != '\t' && value != '\n') || (value >= 0x7F && value < 0xA0) ||
                           value == 0xAD || value == 0x200B || value == 0x200E || value == 0x200F ||
                           (value >= 0x202A && value <= 0x202E) || (value >= 0x2060 && value <= 0x206F) ||
                           value == 0xFEFF || (value >= 0xFFF0 && value <= 0xFFFF);
    const bool space = value == ' ' || value == '\t' || value == '\n' || value == 0xA0 ||
                       (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 || value == 0x202F ||
                       value == 0x205F || value == 0x3000;
    if (space) {
      if (!out_.ends_with(' ')) out_ += ' ';
    } else if (!invisible) {
      out_.append(in_, at_, size);
    }
    at_ += size;
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

/// Removes what templates and references leave when they go: empty parentheses, separators without a neighbour, spaces
/// before a comma or a full stop.
class GapRemover {
 public:
  explicit GapRemover(std::string_view text) : in_(text) { out_.reserve(text.size()); }

  std::string run() {
    // Lead bytes of the other separators and brackets: U+0600 to U+063F, U+3000 to U+303F, U+FF00 to U+FF3F.
    static constexpr ByteSet kSpecial = byte_set("(), ;.\xD8\xE3\xEF");
    for (size_t at = 0; at < in_.size();) {
      const size_t plain = copy_until(kSpecial, in_, at, out_);
      if (plain == in_.size()) break;
      const std::string_view rest = in_.substr(plain);
      const std::string_view sign = rest.substr(0, static_cast<size_t>(decode_utf8(rest).bytes));
      at = plain + sign.size();
      add(sign, in_.substr(at));
    }
    return std::move(out_);
  }

 private:
  static constexpr std::array<std::string_view, 7> kSeparators = {",", ";", "،", "؛", "，", "、", "；"};

  [[nodiscard]] bool ends_with_opening() const { return out_.ends_with('(') || out_.ends_with("（"); }

  /// Bytes of the separator at the end of the output, 0 if there is none.
  [[nodiscard]] size_t separator_at_end() const {
    for (const std::string_view separator : kSeparators)
      if (out_.ends_with(separator)) return separator.size();
    return 0;
  }

  void drop_space() {
    if (out_.ends_with(' ')) out_.pop_back();
  }

  /// True for "printf()". Where a template was, a space stands before the parentheses.
  static bool ends_call(std::string_view text) {
    constexpr std::string_view kParentheses = "()";
    if (!text.ends_with(kParentheses) || text.size() == kParentheses.size()) return false;
    const char before = text[text.size() - kParentheses.size() - 1];
    return is_ascii_letter(before) || is_ascii_digit(before) || before == '_';
  }

  /// `rest` is the text after the sign.
  void add(std::string_view sign, std::string_view rest) {
    const char next = rest.empty() ? ' ' : rest.front();
    if (sign == " ") {
      if (!ends_with_opening() && !out_.ends_with(' ')) out_ += sign;
    } else if ((sign == ")" || sign == "）") && !ends_call(in_.substr(0, in_.size() - rest.size()))) {
      close(sign);
    } else if (std::ranges::find(kSeparators, sign) != kSeparators.end()) {
      if (next == ' ' || next == ')' || next == ',' || next == ';' || sign.size() > 1) drop_space();
      if (!ends_with_opening() && separator_at_end() == 0) out_ += sign;
    } else if (sign == ".") {
      // ". . ." is an ellipsis.
      const bool ellipsis = out_.ends_with(". ") || out_.ends_with(", ") || rest.starts_with(" .");
      if (next == ' ' && !ellipsis) drop_space();
      out_ += sign;
    } else {
      out_ += sign;
    }
  }

  void close(std::string_view sign) {
    drop_space();
    while (const size_t bytes = separator_at_end()) {
      out_.erase(out_.size() - bytes);
      drop_space();
    }
    if (!ends_with_opening()) {
      out_ += sign;
      return;
    }
    out_.erase(out_.size() - (out_.ends_with('(') ? 1 : std::string_view("（").size()));
    drop_space();
  }

  std::string_view in_;
  std::string out_;
};

}  // namespace

bool has_letter(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (is_ascii_letter(text[at])) return true;
    const DecodedUtf8 decoded = decode_utf8(text.substr(at));
    const char32_t value = decoded.value;
    const bool letter = (value >= 0xC0 && value < 0x2000 && value != 0xD7 && value != 0xF7) ||
                        (value >= 0x2C00 && value < 0x2E00) || (value >= 0x3041 && value < 0xFE00) ||
                        (value >= 0xFF21 && value < 0xFFE0) || (value >= 0x10000 && value < 0x1F000) ||
                        value >= 0x20000;
    if (letter) return true;
    at += static_cast<size_t>(decoded.bytes);
  }
  return false;
}

std::string clean_prose(std::string_view text) {
  std::string out = GapRemover(SignRemover(decoded(text)).run()).run();
  const size_t begin = std::min(out.find_first_not_of(" |!*#:;,"), out.size());
  out.erase(0, begin);
  while (out.ends_with(' ')) out.pop_back();
  out = with_signs(out);
  if (!has_letter(out)) out.clear();
  return out;
}

}  // namespace bert
