// Words with their labels in columns, as CoNLL-2003 has them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// One line of a file.
struct ConllLine {
  enum class Kind : uint8_t { kWord, kSentenceEnd, kDocument };
  Kind kind = Kind::kWord;
  int64_t line = 0;
  std::vector<std::string_view> columns;  // of a word; at least one
};

/// Calls take(line) for the lines of a file: columns between spaces or tabs, an empty line behind each sentence, a line
/// -DOCSTART- before a document. Throws DataError with file and line for words with another number of columns than the
/// first one, text that is not UTF-8, and a file without words; InputMissing; IoError.
void for_each_conll_line(const std::string& path, const std::function<void(const ConllLine&)>& take);

}  // namespace bert
