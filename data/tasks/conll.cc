#include "data/tasks/conll.h"

#include <fmt/format.h>

#include <algorithm>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/text/text_input.h"
#include "data/text/unicode.h"

namespace bert {
namespace {

void split_columns(std::string_view line, std::vector<std::string_view>& columns) {
  constexpr std::string_view kSeparators = " \t";
  columns.clear();
  for (size_t at = 0; (at = line.find_first_not_of(kSeparators, at)) != std::string_view::npos;) {
    const size_t end = std::min(line.find_first_of(kSeparators, at), line.size());
    columns.push_back(line.substr(at, end - at));
    at = end;
  }
}

}  // namespace

void for_each_conll_line(const std::string& path, const std::function<void(const ConllLine&)>& take) {
  const MappedFile file(path);
  std::string_view text = file.view();
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  check_is_plain_text(path, text);
  ConllLine line;
  size_t width = 0;
  bool in_sentence = false;
  const auto end_sentence = [&] {
    line.kind = ConllLine::Kind::kSentenceEnd;
    if (in_sentence) take(line);
    in_sentence = false;
  };
  for (size_t at = 0; at < text.size();) {
    ++line.line;
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view content = text.substr(at, end - at);
    at = end + 1;
    if (content.ends_with('\r')) content.remove_suffix(1);
    split_columns(content, line.columns);
    if (line.columns.empty()) {
      end_sentence();
      continue;
    }
    if (line.columns.front() == "-DOCSTART-") {
      end_sentence();
      line.kind = ConllLine::Kind::kDocument;
      take(line);
      continue;
    }
    if (count_invalid_utf8(content) > 0) throw DataError(fmt::format("{}:{}: the text is not UTF-8", path, line.line));
    if (width == 0) width = line.columns.size();
    if (line.columns.size() != width) {
      file.expect_whole();
      throw DataError(fmt::format("{}:{}: the line has {} columns, the lines before it {}", path, line.line,
                                  line.columns.size(), width));
    }
    line.kind = ConllLine::Kind::kWord;
    in_sentence = true;
    take(line);
  }
  end_sentence();
  file.expect_whole();
  if (width == 0) throw DataError(path + ": the file has no words");
}

}  // namespace bert
