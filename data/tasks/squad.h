// SQuAD 1.1 and 2.0: the files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

struct SquadAnswer {
  std::string text;
  int64_t start = 0;  // the first byte in the context. The file counts code points
};

struct SquadQuestion {
  std::string id, text;
  int32_t paragraph = 0;             // index in SquadDataset::paragraphs
  bool is_impossible = false;        // SQuAD 2.0: the context has no answer
  std::vector<SquadAnswer> answers;  // none in a test file, and where is_impossible
};

/// A word of a context: a range of its bytes without space, tab, CR, LF and U+202F. Source: run_squad.py
/// (is_whitespace).
struct SquadWord {
  int64_t begin = 0, end = 0;
};

struct SquadParagraph {
  std::string context;
  std::vector<SquadWord> words;
};

struct SquadDataset {
  std::vector<SquadParagraph> paragraphs;
  std::vector<SquadQuestion> questions;
  bool has_answers = false;  // every question has answers, or is_impossible
};

struct SquadReading {
  bool no_answers = false;   // questions may be impossible (SQuAD 2.0); otherwise these are errors
  bool need_answers = true;  // questions without answers are errors, unless they are impossible
  /// As evaluate-v1.1.py and evaluate-v2.0.py read a file: places of answers do not matter, and a question of SQuAD 2.0
  /// is impossible if its list of answers is empty, whatever is_impossible says.
  bool for_scoring = false;
};

/// Reads a file of SQuAD, or JSON lines with one question each, as the library datasets writes them: id, context,
/// question, and answers with the lists text and answer_start; in SQuAD 2.0 empty lists mean that it is impossible.
/// Throws DataError, which names the place in the JSON and the id of the question, for values that are missing or
/// of the wrong type, an answer that the context does not have at its place, a duplicate id, invalid UTF-8, and a
/// file without questions; InputMissing; IoError. A context that is not valid UTF-8 is an error, since places in it
/// are counted in characters.
SquadDataset read_squad(const std::string& path, const SquadReading& reading);

/// The words of a context, in order.
std::vector<SquadWord> split_squad_words(const std::string& context);

}  // namespace bert
