#include "data/text/paragraphs.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/io/text_parts.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

constexpr int64_t kWrappedWidth = 120;                  // columns; wrapped text is not wider
constexpr size_t kMeanDocumentBytes = size_t{1} << 18;  // with longer documents, two blank lines do not mark a chapter

/// Columns on a terminal. Invalid bytes take one each.
int64_t width_of(char32_t value) {
  return value == kInvalidUtf8 ? 1 : utf8proc_charwidth(static_cast<utf8proc_int32_t>(value));
}

/// True if a program that wraps lines would have broken this one.
bool is_wide(std::string_view line) {
  if (line.size() <= static_cast<size_t>(kWrappedWidth)) return false;
  int64_t width = 0, word = 0, longest = 0;
  while (!line.empty()) {
    const DecodedUtf8 next = decode_utf8(line);
    line.remove_prefix(static_cast<size_t>(next.bytes));
    const int64_t columns = width_of(next.value);
    width += columns;
    word = next.value == U' ' || columns == 2 ? 0 : word + columns;  // ideographs may be broken anywhere
    longest = std::max(longest, word);
    if (width - longest > kWrappedWidth) return true;
  }
  return false;
}

/// The last character of `text`, which is not empty.
char32_t last_of(std::string_view text) {
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < 4 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
  return decode_utf8(text.substr(begin)).value;
}

/// What stands between two lines of a paragraph: nothing in scripts without spaces. Hangul has them.
std::string_view between(std::string_view before, std::string_view after) {
  const auto has_no_spaces = [](char32_t value) {
    constexpr char32_t kFirstHangul = 0xAC00, kLastHangul = 0xD7A3;
    return value != kInvalidUtf8 && width_of(value) == 2 && (value < kFirstHangul || value > kLastHangul);
  };
  return has_no_spaces(last_of(before)) && has_no_spaces(decode_utf8(after).value) ? "" : " ";
}

}  // namespace

size_t blank_lines_between_documents(std::string_view text) {
  size_t breaks = 0, blank = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    if (trimmed(take_part(rest, '\n')).empty()) {
      ++blank;
    } else {
      breaks += blank >= 2;
      blank = 0;
    }
  }
  return breaks > 0 && text.size() / (breaks + 1) <= kMeanDocumentBytes ? 2 : 1;
}

void for_each_paragraph(std::string_view document, const std::function<void(std::string_view)>& take) {
  std::vector<std::string_view> lines;
  std::string joined;
  const auto end_paragraph = [&] {
    if (std::ranges::any_of(lines, is_wide)) {
      for (const std::string_view line : lines) take(line);
    } else if (!lines.empty()) {
      joined.clear();
      for (const std::string_view line : lines) joined.append(joined.empty() ? "" : between(joined, line)).append(line);
      take(joined);
    }
    lines.clear();
  };
  size_t indentation = 0;
  while (!document.empty()) {
    const std::string_view raw = take_part(document, '\n'), content = trimmed(raw);
    if (content.empty()) {
      end_paragraph();
      continue;
    }
    const auto indented = static_cast<size_t>(content.data() - raw.data());
    if (indented > indentation) end_paragraph();
    indentation = indented;
    lines.push_back(content);
  }
  end_paragraph();
}

}  // namespace bert
