// Wishes about the tokens of an input. Expected ids are those of transformers 5's BertTokenizerFast with the same
// vocabulary: the call stands beside each.
#include "app/inference/input_wishes.h"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data/io/error.h"
#include "data/tasks/task_data.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using Ids = std::vector<int32_t>;

namespace {

const WordPieceTokenizer& numbers() {
  static const WordPieceTokenizer tokenizer{Vocabulary(bert::testing::tokens())};
  return tokenizer;
}

std::vector<Ids> sequences_of(const TaskExamples& examples, const TaskDataConfig& config) {
  std::vector<Ids> all;
  for (const TaskSequence& sequence : make_features(examples, numbers(), config, /*for_training=*/false).sequences)
    all.push_back(sequence.input_ids);
  return all;
}

}  // namespace

TEST_CASE("Windows share the tokens that a caller names", "[unit][predict]") {
  // tokenizer("20 21", "5 6 7 8 9 10 11 12", max_length=10, stride=2, truncation="only_second",
  //           return_overflowing_tokens=True)
  TaskExamples question;
  question.task = task_definition("squad-v1");
  SquadParagraph& paragraph = question.squad.paragraphs.emplace_back();
  paragraph.context = "5 6 7 8 9 10 11 12";
  paragraph.words = split_squad_words(paragraph.context);
  question.squad.questions.emplace_back().text = "20 21";
  TaskDataConfig config;
  set_windows(TaskKind::kQuestionAnswering, "20 21", {.max_seq_len = 10, .overlap = 2}, numbers(), config);
  CHECK(sequences_of(question, config) ==
        std::vector<Ids>{{2, 20, 21, 3, 5, 6, 7, 8, 9, 3}, {2, 20, 21, 3, 8, 9, 10, 11, 12, 3}});
  // The same with a question of one token.
  TaskDataConfig shorter;
  set_windows(TaskKind::kQuestionAnswering, "20 21", {.max_seq_len = 10, .max_question_len = 1, .overlap = 5},
              numbers(), shorter);
  CHECK(sequences_of(question, shorter) == std::vector<Ids>{{2, 20, 3, 5, 6, 7, 8, 9, 10, 3},
                                                            {2, 20, 3, 6, 7, 8, 9, 10, 11, 3},
                                                            {2, 20, 3, 7, 8, 9, 10, 11, 12, 3}});
  // tokenizer("5 6 7 8 9", max_length=5, stride=1, truncation=True, return_overflowing_tokens=True)
  TaskExamples sentence;
  sentence.task = task_definition("ner");
  sentence.sentences.emplace_back().text = "5 6 7 8 9";
  TaskDataConfig tags;
  set_windows(TaskKind::kTokenClassification, "", {.max_seq_len = 5, .overlap = 1}, numbers(), tags);
  CHECK(sequences_of(sentence, tags) == std::vector<Ids>{{2, 5, 6, 7, 3}, {2, 7, 8, 9, 3}});
  TaskDataConfig longer;  // a model reads no more than it can
  set_windows(TaskKind::kQuestionAnswering, "20", {.max_seq_len = 4000}, numbers(), longer);
  CHECK(longer.max_seq_length == TaskDataConfig().max_seq_length);
  CHECK(longer.doc_stride == TaskDataConfig().doc_stride);
  CHECK_THROWS_WITH(
      set_windows(TaskKind::kQuestionAnswering, "20 21", {.max_seq_len = 10, .overlap = 5}, numbers(), config),
      Contains("windows of 5 tokens cannot share 5 of them"));
}

TEST_CASE("The second text of a pair is cut before the pair, and may be empty", "[unit][predict]") {
  CHECK(first_tokens(numbers(), "10 20  30 40", 3) == "10 20  30");
  CHECK(first_tokens(numbers(), "10,20", 2) == "10,");
  CHECK(first_tokens(numbers(), "10 20", 2) == "10 20");
  CHECK(first_tokens(numbers(), "", 2).empty());
  const auto ended = [](Ids ids, std::vector<int32_t> types, int64_t most) {
    TaskSequence sequence;
    sequence.input_ids = std::move(ids);
    sequence.token_type_ids = std::move(types);
    const bool cut = end_pair(sequence, /*sep=*/3, most);
    return std::tuple(sequence.input_ids, sequence.token_type_ids, cut);
  };
  // tokenizer(["5 6"], [""]), and with max_length=4, truncation=True
  CHECK(ended({2, 5, 6, 3}, {0, 0, 0, 0}, 10) == std::tuple(Ids{2, 5, 6, 3, 3}, Ids{0, 0, 0, 0, 1}, false));
  CHECK(ended({2, 5, 6, 3}, {0, 0, 0, 0}, 4) == std::tuple(Ids{2, 5, 3, 3}, Ids{0, 0, 0, 1}, true));
  // tokenizer(["5"], ["6"])
  CHECK(ended({2, 5, 3, 6, 3}, {0, 0, 0, 1, 1}, 5) == std::tuple(Ids{2, 5, 3, 6, 3}, Ids{0, 0, 0, 1, 1}, false));
}
