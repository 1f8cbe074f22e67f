#include "data/wikitext/markup_scanner.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "data/wikitext/entities.h"
#include "data/wikitext/links.h"
#include "data/wikitext/open_markup.h"
#include "data/wikitext/tags.h"
#include "data/wikitext/templates.h"
#include "data/wikitext/text_pieces.h"

namespace bert {
namespace {

constexpr size_t kLongestAttributes = 4096;  // bytes of a tag; more is a tag that was not closed

/// True for the bytes at which markup may begin or end.
constexpr ByteSet kMarkupBytes = byte_set("<{}[]|\n-");

/// Finds the next place of something, for positions that never decrease: all searches together read the text once.
template <class Find>
class NextPlace {
 public:
  explicit NextPlace(Find find) : find_(std::move(find)) {}
  size_t from(size_t position) {
    if (!searched_ || (place_ != kNone && place_ < position)) {
      place_ = find_(position);
      searched_ = true;
    }
    return place_;
  }

 private:
  Find find_;
  size_t place_ = 0;
  bool searched_ = false;
};

class MarkupScanner : OpenMarkup {
 public:
  MarkupScanner(std::string_view text, const WikiPage& page, const WikiNamespaces& namespaces)
      : OpenMarkup(namespaces),
        in_(text),
        page_(page),
        next_heading_([text](size_t from) { return text.find("\n==", from); }),
        next_comment_end_([text](size_t from) { return text.find("-->", from); }),
        next_tag_end_([text](size_t from) { return text.find('>', from); }),
        next_tag_begin_([text](size_t from) { return text.find('<', from); }) {}

  std::string scan() {
    out_.reserve(in_.size());
    while (at_ < in_.size()) {
      at_ = copy_until(kMarkupBytes, in_, at_, out_);
      if (at_ < in_.size()) special(in_[at_]);
    }
    abandon_to(0);
    return std::move(out_);
  }

 private:
  void special(char c) {
    switch (c) {
      case '<':
        return open_tag();
      case '{':
        return open_braces();
      case '}':
        return close_braces();
      case '[':
        return open_bracket();
      case ']':
        return close_bracket();
      case '|':
        return pipe();
      case '\n':
        return end_line();
      default:
        return open_variant();
    }
  }

  [[nodiscard]] char peek(size_t ahead) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }

  void copy(size_t bytes) {
    out_.append(in_, at_, bytes);
    at_ += bytes;
  }

  /// Opens what the next `bytes` open.
  void push(Kind kind, size_t bytes) {
    open(kind, bytes);
    copy(bytes);
  }

  // ---- braces ----

  void open_braces() {
    const size_t braces = run_length(in_, '{', at_);
    if (braces == 1) {
      if (peek(1) == '|' && at_line_start(" \t:*#;")) return push(Kind::kTable, 2);
      return copy(1);
    }
    push(Kind::kBraces, braces);
  }

  void close_braces() {
    size_t braces = run_length(in_, '}', at_);
    while (braces >= 2) {
      const auto index =
          innermost(Kind::kBraces, {Kind::kLink, Kind::kExternal, Kind::kVariant, Kind::kTable, Kind::kHtmlTable});
      if (!index) break;
      // Frames inside are unclosed. All but links leave their text to the template.
      frames_.resize(*index + 1);
      braces -= close_template(std::min<size_t>({braces, frames_.back().braces, 3}));
    }
    if (braces > 0 && peek(braces) == '-' && close_variant(braces)) return;
    copy(braces);
  }

  /// Closes the innermost `count` (2 or 3) of the braces of the innermost frame. Returns `count`.
  size_t close_template(size_t count) {
    Frame& frame = frames_.back();
    parts_.clear();
    size_t begin = frame.content;
    const std::string_view text = out_;
    for (size_t i = frame.pipes; i < pipes_.size(); ++i) {
      parts_.push_back(text.substr(begin, pipes_[i] - begin));
      begin = pipes_[i] + 1;
    }
    parts_.push_back(text.substr(begin));
    // {{{parameter|default}}} is its default in an article.
    const TemplatePlace place = {title(), page_.language, text.substr(0, frame.content - count),
                                 in_.substr(at_ + count)};
    const std::string value = count == 2          ? expand_template(parts_, place)
                              : parts_.size() > 1 ? std::string(parts_[1])
                                                  : std::string();
    replace(frame.content - count, value);
    frame.braces -= count;
    frame.content -= count;
    if (frame.braces < 2) frames_.pop_back();
    separate_from_line_start();
    at_ += count;
    return count;
  }

  /// The value of {{PAGENAME}}. It ends being the title where a hostile page repeats a long title to any size.
  [[nodiscard]] std::string_view title() const {
    constexpr size_t kMore = size_t{1} << 16;  // bytes by which titles may lengthen a short page
    return out_.size() <= 2 * in_.size() + kMore ? page_.title : std::string_view();
  }

  void open_variant() {
    const bool opens = peek(1) == '{' && peek(2) != '{' && peek(2) != '|';
    if (opens) return push(Kind::kVariant, 2);
    copy(1);
  }

  /// Closes -{...}- at `braces` braces and a hyphen. False if none is open.
  bool close_variant(size_t braces) {
    const auto index = innermost(Kind::kVariant, {Kind::kLink, Kind::kExternal});
    if (!index) return false;
    close(*index, std::string(variant_text(std::string_view(out_).substr(frames_[*index].content))));
    at_ += braces + 1;
    return true;
  }

  // ---- links ----

  void open_bracket() {
    const size_t brackets = run_length(in_, '[', at_);
    if (brackets == 1) {
      if (url_scheme(in_.substr(at_ + 1, 16)) > 0) return push(Kind::kExternal, 1);
      return copy(1);
    }
    copy(brackets - 2);  // all but the last two are text
    push(Kind::kLink, 2);
  }

  void close_bracket() {
    if (!frames_.empty() && frames_.back().kind == Kind::kExternal) {
      const std::string_view content = std::string_view(out_).substr(frames_.back().content);
      const std::string value = kCitation + std::string(external_link_text(content)) + kCitation;
      close(frames_.size() - 1, value);
      ++at_;
      return;
    }
    if (peek(1) != ']' || frames_.empty() || frames_.back().kind != Kind::kLink) return copy(1);
    const Frame frame = frames_.back();
    const std::string_view content = std::string_view(out_).substr(frame.content);
    const bool has_label = frame.pipes < pipes_.size();
    const size_t target_bytes = has_label ? pipes_[frame.pipes] - frame.content : content.size();
    const auto label = has_label ? std::optional(content.substr(target_bytes + 1)) : std::nullopt;
    const std::string value(internal_link_text(content.substr(0, target_bytes), label, namespaces_));
    close(frames_.size() - 1, value);
    separate_from_line_start();
    at_ += 2;
  }

  // ---- pipes, lines, tables ----

  void pipe() {
    // "|}" ends a table, but "|}}" may end a template whose last parameter is empty.
    if (peek(1) == '}' && at_line_start(" \t")) {
      const auto table =
          innermost(Kind::kTable, {Kind::kLink, Kind::kExternal, Kind::kVariant, Kind::kHtmlTable, Kind::kBraces});
      const bool ends_template =
          peek(2) == '}' && innermost(Kind::kBraces, {Kind::kLink, Kind::kExternal, Kind::kVariant});
      if (table && !ends_template) {
        close(*table, {});
        at_ += 2;
        return;
      }
    }
    const bool counts =
        !frames_.empty() && frames_.back().kind != Kind::kTable && frames_.back().kind != Kind::kHtmlTable;
    if (counts) pipes_.push_back(out_.size());
    copy(1);
  }

  [[nodiscard]] bool ends_with_line(Frame& frame, bool paragraph_ends) const {
    if (frame.kind == Kind::kExternal) return true;
    const bool in_target = frame.kind == Kind::kLink && frame.pipes == pipes_.size();
    if (in_target || !paragraph_ends) return in_target;
    return frame.kind == Kind::kVariant || (frame.kind == Kind::kLink && !(is_file(frame) && closes_soon(frame)));
  }

  /// True if the link that is open at `frame` shows a file. The end of its target is known.
  [[nodiscard]] bool is_file(const Frame& frame) const {
    const std::string_view target = std::string_view(out_).substr(frame.content, pipes_[frame.pipes] - frame.content);
    return is_file_link(target, namespaces_);
  }

  /// True if the end of `frame`, the innermost link, follows before the next heading of level 2: a caption may have
  /// several paragraphs. Captions are short. Limits of bytes, and of links that are not closed, bound the time.
  [[nodiscard]] bool closes_soon(Frame& frame) const {
    constexpr size_t kLongest = 4096, kMostOpen = 8;
    if (frame.end > at_) return true;
    const std::string_view rest = in_.substr(at_, kLongest);
    const std::string_view caption = rest.substr(0, rest.find("\n=="));
    size_t open = 0;
    for (size_t i = caption.find_first_of("[]"); i != kNone && i + 1 < caption.size() && open < kMostOpen;) {
      const bool is_double = caption[i + 1] == caption[i];
      if (is_double && caption[i] == ']' && open == 0) {
        frame.end = at_ + i;
        return true;
      }
      if (is_double) caption[i] == '[' ? ++open : --open;
      i = caption.find_first_of("[]", i + (is_double ? 2 : 1));
    }
    return false;
  }

  void end_line() {
    const std::string_view rest = in_.substr(at_ + 1, 3);
    const bool heading = rest.starts_with("==");
    if (heading && rest != "===") abandon_to(0);
    const bool paragraph_ends = heading || rest.starts_with('\n');
    while (!frames_.empty() && ends_with_line(frames_.back(), paragraph_ends)) abandon();
    copy(1);
  }

  // ---- tags ----

  /// True if the <sup> that ends at at_ has a number, and stands behind a digit: 10<sup>7</sup> is not 107.
  [[nodiscard]] bool is_exponent() const {
    if (out_.empty() || !is_ascii_digit(out_.back())) return false;
    std::string_view rest = in_.substr(at_);
    for (const std::string_view minus : {"-", "−", "&minus;"})
      if (rest.starts_with(minus)) rest.remove_prefix(minus.size());
    const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
    return digits > 0 && rest.substr(digits).starts_with("</");
  }

  void open_tag() {
    if (in_.substr(at_, 4) == "<!--") return skip_comment();
    const bool closing = peek(1) == '/';
    size_t end = at_ + (closing ? 2 : 1);
    std::string name;
    while (end < in_.size() && name.size() <= kLongestTag && (is_ascii_letter(in_[end]) || is_ascii_digit(in_[end])))
      name += ascii_lower(in_[end++]);
    const TagKind kind = tag_kind(name);
    const size_t tag_end = kind == TagKind::kUnknown ? kNone : next_tag_end_.from(end);
    const bool broken = tag_end == kNone || tag_end - end > kLongestAttributes ||
                        (next_tag_begin_.from(end) < tag_end && kind != TagKind::kSkipped);
    if (broken) return copy(1);
    const std::string_view attributes = in_.substr(end, tag_end - end);
    at_ = tag_end + 1;
    if (closing) return close_tag(kind);
    const bool has_content = !trim(attributes).ends_with('/');
    switch (kind) {
      case TagKind::kUnknown:
        return;
      case TagKind::kInline:
        if (name == "sup" && is_exponent()) out_ += '^';
        return;
      case TagKind::kBlock:
        out_ += "\n\n";
        return;
      case TagKind::kBreak:
        out_ += ' ';
        return;
      case TagKind::kQuote:
        out_ += '"';
        return;
      case TagKind::kItem:
        out_ += "\n* ";
        return;
      case TagKind::kHeading:
        out_ += "\n==";
        return;
      case TagKind::kTable:
        if (has_content) open(Kind::kHtmlTable, 0);
        return;
      default:
        if (has_content) element_with_raw_content(kind, name, attributes);
        out_ += kSeparator;
    }
  }

  void close_tag(TagKind kind) {
    if (kind == TagKind::kBlock) out_ += "\n\n";
    if (kind == TagKind::kItem) out_ += '\n';
    if (kind == TagKind::kQuote) out_ += '"';
    if (kind == TagKind::kHeading) out_ += "==\n";
    if (kind != TagKind::kTable) return;
    const auto index = innermost(Kind::kHtmlTable, {Kind::kLink, Kind::kExternal, Kind::kVariant, Kind::kTable});
    if (index) close(*index, {});
  }

  void skip_comment() {
    const size_t end = next_comment_end_.from(at_ + 4);
    if (end == kNone) {  // unclosed: the rest of its line goes
      at_ = std::min(in_.find('\n', at_), in_.size());
      return;
    }
    at_ = end + 3;
    // A comment on a line of its own goes with the line.
    const size_t following = in_.find_first_not_of(" \t", at_);
    if (following != kNone && in_[following] == '\n' && at_line_start(" \t")) at_ = following + 1;
  }

  /// An element whose content is no wikitext. at_ is after its tag.
  void element_with_raw_content(TagKind kind, const std::string& name, std::string_view attributes) {
    const size_t end = closing_tag(name);
    const size_t heading = next_heading_.from(at_);
    // A reference that is not closed before the next section was left open by mistake.
    if (end == kNone || (heading < end && name == "ref")) return;
    const std::string_view content = in_.substr(at_, end - at_);
    const bool within_line = content.find('\n') == kNone;
    if (kind == TagKind::kLiteral || (kind == TagKind::kFormula && is_plain_formula(trim(content))) ||
        (kind == TagKind::kCode && within_line && attributes.find("inline") != kNone))
      append_protected(kind == TagKind::kLiteral ? literal(content) : std::string(trim(content)));
    const size_t tag_end = next_tag_end_.from(end);
    at_ = tag_end == kNone ? in_.size() : tag_end + 1;
  }

  /// The place of "</name" at or after at_, in any case.
  size_t closing_tag(const std::string& name) {
    auto found = closing_tags_.find(name);
    if (found == closing_tags_.end()) {
      FindClosing find = [this, name](size_t from) {
        for (size_t i = from; (i = in_.find("</", i)) != kNone; i += 2) {
          const std::string_view rest = in_.substr(i + 2);
          if (starts_with_any_case(rest, name) && (rest.size() == name.size() || !is_ascii_letter(rest[name.size()])))
            return i;
        }
        return kNone;
      };
      found = closing_tags_.emplace(name, NextPlace(std::move(find))).first;
    }
    return found->second.from(at_);
  }

  /// The content of <nowiki> as a reader sees it: references there are signs, and no markup.
  static std::string literal(std::string_view content) {
    std::string text;
    decode_references(content, text);
    return text;
  }

  void append_protected(std::string_view text) {
    constexpr std::string_view kMarkup = "[]{}|'*#:;=_<>!-&";
    out_ += kSeparator;
    for (const char c : text) {
      if (kMarkup.find(c) != kNone) out_ += kProtected;
      out_ += c == '\n' ? ' ' : c;
    }
    out_ += kSeparator;
  }

  using FindClosing = std::function<size_t(size_t)>;

  std::string_view in_;
  const WikiPage& page_;
  size_t at_ = 0;  // in in_
  std::vector<std::string_view> parts_;
  NextPlace<FindClosing> next_heading_, next_comment_end_, next_tag_end_, next_tag_begin_;
  std::map<std::string, NextPlace<FindClosing>> closing_tags_;
};

}  // namespace

std::string scan_markup(std::string_view text, const WikiPage& page, const WikiNamespaces& namespaces) {
  return MarkupScanner(text, page, namespaces).scan();
}

}  // namespace bert
