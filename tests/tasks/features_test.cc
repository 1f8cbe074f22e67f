// Features and answers of fine-tuning tasks against Google's run_classifier.py and run_squad.py (golden/task_features.py).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/system/crypto.h"
#include "app/tasks/answer_decoding.h"
#include "app/tasks/answer_text.h"
#include "app/tasks/prediction_files.h"
#include "app/tasks/task_scoring.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/random/py_random.h"
#include "data/tasks/task_data.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;
using nlohmann::json;

namespace {

const json& official_features() {
  static const json data = json::parse(read_file(golden("task_features.json")));
  return data;
}

WordPieceTokenizer tokenizer_of(bool lower) {
  TokenizerConfig config;
  config.do_lower_case = lower;
  return WordPieceTokenizer(Vocabulary(official_features()["vocabulary"].get<std::vector<std::string>>()), config);
}

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TaskFile file_of(const TaskDefinition& task, TaskSplit split) {
  for (const TaskFile& file : task.files) {
    if (file.split == split) return file;
  }
  throw std::out_of_range("no such file");
}

TaskExamples read(const std::string& name, TaskSplit split, const std::string& path) {
  const TaskDefinition task = task_definition(name);
  return read_task(task, file_of(task, split), path, {});
}

/// The task of one of the golden's two files of SQuAD.
struct SquadGroup {
  explicit SquadGroup(const json& group)
      : name(group["v2"].get<bool>() ? "squad-v2" : "squad-v1"), no_answers(group["v2"]) {
    write(directory.path("squad.json"), group["file"].dump());
  }
  [[nodiscard]] TaskExamples read_split(TaskSplit split) const {
    return read(name, split, directory.path("squad.json"));
  }

  TemporaryDirectory directory;
  std::string name;
  bool no_answers;
};

TaskDataConfig config_of(const json& at) {
  TaskDataConfig config;
  config.max_seq_length = at["max_seq_length"];
  config.doc_stride = at["doc_stride"];
  config.max_query_length = at["max_query_length"];
  return config;
}

void check_training(const TaskExamples& examples, const TaskFeatures& features, const json& rows) {
  REQUIRE(features.sequences.size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const TaskSequence& sequence = features.sequences[i];
    const json got = {examples.squad.questions[static_cast<size_t>(sequence.example)].id, sequence.input_ids.size(),
                      sequence.start_position, sequence.end_position};
    CHECK(got == rows[i]);
  }
}

void check_evaluation(const TaskExamples& examples, const TaskFeatures& features, const json& rows) {
  REQUIRE(features.sequences.size() == rows.size());
  REQUIRE(features.windows.size() == rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const TaskSequence& sequence = features.sequences[i];
    const SquadWindow& window = features.windows[i];
    std::string max_context;
    for (const bool is : window.max_context) max_context += is ? '1' : '0';
    const json got = {examples.squad.questions[static_cast<size_t>(sequence.example)].id, sequence.input_ids,
                      sequence.token_type_ids, window.words, max_context};
    CHECK(got == rows[i]);
  }
}

/// The logits that the generator drew.
std::vector<float> drawn_logits(const TaskFeatures& features, uint64_t seed) {
  PyRandom random(seed);
  std::vector<float> logits(static_cast<size_t>(features.logit_offsets().back()));
  for (float& logit : logits) logit = static_cast<float>(random.randint(-40, 39)) / 8;
  return logits;
}

void check_predictions(const TaskExamples& examples, const TaskFeatures& features, const Tokenizer& tokenizer,
                       TaskDataConfig config, const json& wanted) {
  config.n_best_size = wanted["n_best_size"];
  config.max_answer_length = wanted["max_answer_length"];
  config.search_null_threshold = false;
  config.null_score_diff_threshold = wanted["threshold"];
  const std::vector<float> logits = drawn_logits(features, wanted["seed"]);
  const TaskScores scores = score_task(examples, features, logits, tokenizer, config);
  REQUIRE(scores.outputs.size() == (examples.task.no_answers ? 3 : 2));
  CHECK(scores.outputs[0].name == "predictions.json");
  CHECK(json::parse(scores.outputs[0].content) == wanted["predictions"]);
  const json n_best = json::parse(scores.outputs[1].content);
  REQUIRE(n_best.size() == wanted["nbest"].size());
  for (const auto& [id, list] : wanted["nbest"].items()) {
    INFO(id);
    for (size_t i = 0; i < list.size(); ++i) {
      const json& got = n_best[id][i];
      CHECK(json({got["text"], got["start_logit"], got["end_logit"]}) == json({list[i][0], list[i][1], list[i][2]}));
      CHECK(got["probability"].get<double>() == Approx(list[i][3].get<double>()).margin(1e-11));
    }
  }
  std::vector<size_t> sizes;
  for (const SquadQuestion& question : examples.squad.questions) sizes.push_back(n_best[question.id].size());
  CHECK(json(sizes) == wanted["nbest_sizes"]);
  if (!examples.task.no_answers) return;
  CHECK(json::parse(scores.outputs[2].content) == wanted["null_odds"]);
}

}  // namespace

TEST_CASE("SQuAD features equal those of run_squad.py", "[unit][tasks]") {
  for (const json& group : official_features()["squad"]) {
    const SquadGroup squad(group);
    const TaskExamples training = squad.read_split(TaskSplit::kTrain), evaluation = squad.read_split(TaskSplit::kDev);
    for (const json& at : group["cases"]) {
      INFO(squad.name << " with max_seq_length " << at["max_seq_length"]);
      const WordPieceTokenizer tokenizer = tokenizer_of(at["do_lower_case"]);
      check_training(training, make_features(training, tokenizer, config_of(at), true), at["training"]);
      check_evaluation(evaluation, make_features(evaluation, tokenizer, config_of(at), false), at["evaluation"]);
    }
  }
}

TEST_CASE("A window that is longer by more than 100 words beats one more word of context", "[unit][tasks]") {
  // Windows of 200 and 90 words, the second from word 150 on. Word 175 has 24 words behind it in the first and 25 before
  // it in the second: 24 + 0.01 * 200 is more than 25 + 0.01 * 90. Word 176 has 23 and 26.
  const std::string word = "the", space = " ";
  std::string context = word;
  for (int i = 1; i < 240; ++i) context += space + word;
  const json question = {{"id", "q"}, {"question", word}, {"answers", {{{"text", word}, {"answer_start", 0}}}}};
  const json paragraph = {{"context", context}, {"qas", {question}}};
  const SquadGroup squad({{"v2", false}, {"file", {{"data", {{{"title", "t"}, {"paragraphs", {paragraph}}}}}}}});
  TaskDataConfig config;
  config.max_seq_length = 204;  // [CLS], the question's word and two [SEP]
  config.doc_stride = 150;
  const TaskFeatures features = make_features(squad.read_split(TaskSplit::kDev), tokenizer_of(true), config, false);
  REQUIRE(features.windows.size() == 2);
  REQUIRE(features.windows[1].max_context.size() == 90);
  CHECK(features.windows[0].max_context[175]);
  CHECK_FALSE(features.windows[1].max_context[25]);
  CHECK_FALSE(features.windows[0].max_context[176]);
  CHECK(features.windows[1].max_context[26]);
}

TEST_CASE("Another stride, another limit of an answer or other logits give other results than the golden",
          "[unit][tasks]") {
  const json& group = official_features()["squad"][0];
  const SquadGroup squad(group);
  const TaskExamples examples = squad.read_split(TaskSplit::kDev);
  const json& at = group["cases"][1];
  TaskDataConfig config = config_of(at);
  const WordPieceTokenizer tokenizer = tokenizer_of(at["do_lower_case"]);
  const TaskFeatures features = make_features(examples, tokenizer, config, false);
  const json& wanted = at["predictions"][0];
  std::vector<float> logits = drawn_logits(features, wanted["seed"]);
  const auto predictions = [&] {
    return json::parse(score_task(examples, features, logits, tokenizer, config).outputs[0].content);
  };
  CHECK(predictions() == wanted["predictions"]);
  for (float& logit : logits) logit = -logit;
  CHECK(predictions() != wanted["predictions"]);
  for (float& logit : logits) logit = -logit;
  config.max_answer_length = 5;
  CHECK(predictions() != wanted["predictions"]);
  ++config.doc_stride;
  CHECK(make_features(examples, tokenizer, config, false).sequences.size() != at["evaluation"].size());
}

TEST_CASE("SQuAD answers equal those of run_squad.py for the same logits", "[unit][tasks]") {
  for (const json& group : official_features()["squad"]) {
    const SquadGroup squad(group);
    const TaskExamples examples = squad.read_split(TaskSplit::kDev);
    for (const json& at : group["cases"]) {
      INFO(squad.name << " with max_seq_length " << at["max_seq_length"]);
      const WordPieceTokenizer tokenizer = tokenizer_of(at["do_lower_case"]);
      const TaskFeatures features = make_features(examples, tokenizer, config_of(at), false);
      for (const json& wanted : at["predictions"])
        check_predictions(examples, features, tokenizer, config_of(at), wanted);
    }
  }
}

TEST_CASE("The text of an answer is cut from the context as in get_final_text", "[unit][tasks]") {
  for (const json& row : official_features()["final_texts"]) {
    const std::string text = row[0], original = row[1];
    INFO(text << " in " << original);
    CHECK(align_answer(text, original, {.do_lower_case = true}) == row[2]);
    CHECK(align_answer(text, original, {.do_lower_case = false}) == row[3]);
  }
}

TEST_CASE("MRPC features equal those of run_classifier.py", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("train.tsv");
  std::string text = official_features()["mrpc_file"];
  for (const bool crlf : {false, true}) {
    if (crlf) {
      for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2) text.insert(at, "\r");
    }
    write(path, text);
    const TaskExamples examples = read("mrpc", TaskSplit::kTrain, path);
    for (const json& at : official_features()["mrpc"]) {
      TaskDataConfig config;
      config.max_seq_length = at["max_seq_length"];
      const TaskFeatures features = make_features(examples, tokenizer_of(at["do_lower_case"]), config, true);
      REQUIRE(features.sequences.size() == at["rows"].size());
      for (size_t i = 0; i < features.sequences.size(); ++i) {
        const TaskSequence& sequence = features.sequences[i];
        CHECK(json({sequence.input_ids, sequence.token_type_ids, sequence.label}) == at["rows"][i]);
      }
    }
  }
}

TEST_CASE("Features of real MRPC and SQuAD equal Google's", "[unit][tasks]") {
  const std::string data = shared_data();
  if (data.empty()) BERT_SKIP("../shared/data is absent");
  const auto tokenizer = make_tokenizer(data + "/vocab/bert-base-uncased-vocab.txt");
  std::string lines;
  const TaskExamples mrpc = read("mrpc", TaskSplit::kTrain, data + "/glue/MRPC/train.tsv");
  for (const TaskSequence& s : make_features(mrpc, *tokenizer, {}, true).sequences)
    lines += fmt::format("[[{}],[{}],{}]\n", fmt::join(s.input_ids, ","), fmt::join(s.token_type_ids, ","), s.label);
  CHECK(sha256(lines) == "16141087247840a45938649105db4cca0609ebfb35f49f005152fb217546f7d5");

  lines.clear();
  TaskDataConfig config;
  config.max_seq_length = 384;
  const TaskExamples squad = read("squad-v1", TaskSplit::kTrain, data + "/squad/dev-v1.1.json");
  const TaskFeatures features = make_features(squad, *tokenizer, config, true);
  CHECK(features.sequences.size() == 10833);  // as Google and NVIDIA report for the development set
  for (const TaskSequence& s : features.sequences) {
    lines += fmt::format("[[{}],[{}],{},{}]\n", fmt::join(s.input_ids, ","), fmt::join(s.token_type_ids, ","),
                         s.start_position, s.end_position);
  }
  CHECK(sha256(lines) == "0135fbe8d1bb22cb23995b9df4489b22206112e780449fa3974a111ccab7fcba");
}

TEST_CASE("A question has the null score of its own windows, and an answer even without candidates", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("dev.json");
  write(path, R"({"data": [{"paragraphs": [
    {"context": "the fox", "qas": [{"id": "a", "question": "who ?", "is_impossible": true, "answers": []}]},
    {"context": "the dog", "qas": [{"id": "b", "question": "who ?", "answers": [{"text": "dog", "answer_start": 4}]}]},
    {"context": " ", "qas": [{"id": "c", "question": "who ?", "is_impossible": true, "answers": []}]}]}]})");
  const WordPieceTokenizer tokenizer = tokenizer_of(true);
  const TaskExamples examples = read("squad-v2", TaskSplit::kDev, path);
  TaskDataConfig config;
  config.n_best_size = 1;
  const TaskFeatures features = make_features(examples, tokenizer, config, false);
  REQUIRE(features.sequences.size() == 2);  // the third context has no tokens
  REQUIRE(features.sequences[0].input_ids.size() == 7);
  // [CLS] who ? [SEP] the fox [SEP]: the first question's best token is [CLS], with 3 + 2; the second's is "dog".
  std::vector<float> logits(28, 0);
  logits[0] = 3;
  logits[1] = 2;
  logits[14] = 1;
  logits[15] = 0.5F;
  logits[14 + 10] = 4;
  logits[14 + 11] = 5;
  const std::vector<QuestionAnswers> answers = decode_answers(examples, features, logits, tokenizer, config);
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].best.empty());
  CHECK(answers[0].null_score_diff == 5);  // of a candidate with score 0
  CHECK(answers[1].best == "dog");
  CHECK(answers[1].null_score_diff == 1.5 - 9);
  CHECK(answers[2].best.empty());
  CHECK(answers[1].at_threshold(-8).empty());
  CHECK(answers[1].at_threshold(-7) == "dog");
  const TaskScores scores = score_task(examples, features, logits, tokenizer, config);
  CHECK(json::parse(scores.outputs[0].content) == json({{"a", ""}, {"b", "dog"}, {"c", ""}}));
  REQUIRE(scores.metrics.size() > 2);
  CHECK(scores.metrics[0].name == "exact_match");
  CHECK(scores.metrics[0].value == 100);

  TaskExamples first = examples;  // SQuAD 1.1: Google's word for no answer
  first.task.no_answers = false;
  CHECK(decode_answers(first, features, logits, tokenizer, config)[2].best == "empty");
}

TEST_CASE("The null threshold is searched on the development set", "[unit][tasks]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("dev.json");
  write(path, R"({"data": [{"paragraphs": [{"context": "the fox", "qas": [
    {"id": "a", "question": "who ?", "answers": [{"text": "fox", "answer_start": 4}]},
    {"id": "b", "question": "who ?", "is_impossible": true, "answers": []}]}]}]})");
  const WordPieceTokenizer tokenizer = tokenizer_of(true);
  const TaskExamples examples = read("squad-v2", TaskSplit::kDev, path);
  TaskDataConfig config;
  const TaskFeatures features = make_features(examples, tokenizer, config, false);
  std::vector<float> logits(28, -9);
  for (const size_t question : {0, 1}) {
    logits[question * 14] = question == 0 ? 5 : 7;  // start of [CLS]; its end is -9
    logits[question * 14 + 1] = 0;
    logits[question * 14 + 10] = logits[question * 14 + 11] = 1;  // "fox"
  }
  // Differences: 5 - 2 = 3 for the question with an answer, 7 - 2 = 5 for the other. With threshold 0 both are "".
  const TaskScores searched = score_task(examples, features, logits, tokenizer, config);
  CHECK(searched.null_threshold == 3);
  CHECK(json::parse(searched.outputs[0].content) == json({{"a", "fox"}, {"b", ""}}));
  CHECK(searched.metrics[0].value == 100);
  config.search_null_threshold = false;
  const TaskScores plain = score_task(examples, features, logits, tokenizer, config);
  CHECK(json::parse(plain.outputs[0].content) == json({{"a", ""}, {"b", ""}}));
  CHECK(plain.metrics[0].value == 50);

  // Differences 5 - 18 and -7 - 2 with the wrong answers "the" and "fox": having no answer at all is best.
  logits[8] = logits[9] = 9;
  logits[14] = -7;
  CHECK(score_task(examples, features, logits, tokenizer, config).metrics[0].value == 0);
  config.search_null_threshold = true;
  const TaskScores none = score_task(examples, features, logits, tokenizer, config);
  CHECK(none.null_threshold < -13);
  CHECK(none.metrics[0].value == 50);
}
