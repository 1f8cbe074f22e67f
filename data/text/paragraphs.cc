#include "data/text/paragraphs.h"

#include <algorithm>
#include <string>
#include <vector>

namespace bert {
namespace {

constexpr size_t kWrappedWidth = 120;                   // bytes; wrapped text is not wider
constexpr size_t kMeanDocumentBytes = size_t{1} << 18;  // with longer documents, two blank lines do not mark a chapter

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

std::string_view strip_ascii_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view take_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

size_t blank_lines_between_documents(std::string_view text) {
  size_t breaks = 0, blank = 0;
  std::string_view rest = text;
  while (!rest.empty()) {
    if (strip_ascii_space(take_line(rest)).empty()) {
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
    const auto is_wide = [](std::string_view line) { return line.size() > kWrappedWidth; };
    if (std::any_of(lines.begin(), lines.end(), is_wide)) {
      for (const std::string_view line : lines) take(line);
    } else if (!lines.empty()) {
      joined.clear();
      for (const std::string_view line : lines) joined.append(joined.empty() ? "" : " ").append(line);
      take(joined);
    }
    lines.clear();
  };
  size_t indentation = 0;
  while (!document.empty()) {
    const std::string_view raw = take_line(document), content = strip_ascii_space(raw);
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
