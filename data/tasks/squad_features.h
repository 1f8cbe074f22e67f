// SQuAD: questions and windows of their contexts.
#pragma once

#include <cstdint>
#include <vector>

#include "data/config.h"
#include "data/tasks/squad.h"
#include "data/tasks/task_sequence.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The window of a sequence [CLS] question [SEP] part of the context [SEP].
struct SquadWindow {
  int32_t first_token = 0;        // position in the sequence of the context's first token
  std::vector<int32_t> words;     // for each token of the context in the window, the number of its word
  std::vector<bool> max_context;  // for each of these: no other window has more context around the token
};

/// Makes sequences and windows of questions. Questions of one paragraph should follow each other, since the tokens of the
/// last paragraph are kept. Source: run_squad.py (convert_examples_to_features).
class SquadFeatureMaker {
 public:
  /// The three must outlive the maker.
  SquadFeatureMaker(const SquadDataset& data, const Tokenizer& tokenizer, const TaskDataConfig& config);

  /// Appends the windows of question `index`. With `for_training`, `sequences` have the positions of the first answer, as
  /// _improve_answer_span moves it, and `windows` gets none; the question is left out, and the result false, if the
  /// answer's words in the context do not contain the answer (read_squad_examples skips it, too). A context without
  /// tokens has no windows. Throws DataError if max_seq_length leaves no room for the context.
  bool append(int32_t index, bool for_training, std::vector<TaskSequence>& sequences,
              std::vector<SquadWindow>& windows);
  /// The number of questions with more tokens than max_query_length, whose rest is lost.
  [[nodiscard]] int64_t cut() const { return cut_; }

 private:
  struct AnswerTokens;
  void tokenize(int32_t paragraph);
  bool find_answer(const SquadQuestion& question, AnswerTokens& tokens) const;

  const SquadDataset& data_;
  const Tokenizer& tokenizer_;
  const TaskDataConfig& config_;
  int64_t cut_ = 0;
  int32_t paragraph_ = -1;       // whose tokens are kept
  std::vector<int32_t> tokens_;  // of the context
  std::vector<int32_t> words_;   // the word of each token
  std::vector<int32_t> firsts_;  // the first token of each word
};

}  // namespace bert
