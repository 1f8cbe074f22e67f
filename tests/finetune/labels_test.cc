// Fine-tuning on several numbers, on spans, on relations, and on flat files of SQuAD; XNLI.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/finetune/entity_marker_rows.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/finetuning_step.h"
#include "app/finetune/seed_series.h"
#include "app/inference/marker_model.h"
#include "app/inference/pretrained.h"
#include "app/serve/protocols/predict_request.h"
#include "app/system/exit_codes.h"
#include "app/verbs/torch_verbs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "data/loader/task_loader.h"
#include "data/tasks/entity_markers.h"
#include "tests/support/command_testing.h"
#include "tests/support/predict_command.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::checkpoint_file;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::lines_of;
using bert::testing::predict;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task_of;
using nlohmann::json;

namespace {

json json_file(const std::string& path) { return json::parse(read_file(path)); }

json summary_of(const FinetuneConfig& config) { return json_file(config.run_directory + "/summary.json"); }

/// The metrics that `bert evaluate` prints for the development file.
json evaluated(const FinetuneConfig& config, const std::string& checkpoint, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"evaluate", config.task, "--dataset", config.data.dev_file, "--checkpoint", checkpoint});
  const auto result = run_command(evaluate_torch_command, more);
  CAPTURE(result.err);
  REQUIRE(result.code == kOk);
  return json::parse(result.out);
}

/// The directory of transformers that `bert convert` makes of the run, without the name of the task.
std::string converted(const FinetuneConfig& config, const TemporaryDirectory& directory) {
  const std::string model = directory.path(config.task + "-hf");
  const auto result = run_command(
      convert_command, {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", model});
  CAPTURE(result.err);
  REQUIRE(result.code == kOk);
  json file = json_file(model + "/config.json");
  file.erase("finetuning_task");
  std::ofstream(model + "/config.json") << file;
  return model;
}

/// Relations of two numbers: "up" if the second one is larger. Every entity stands between other numbers.
std::string relations() {
  std::string rows;
  for (int i = 0; i < 24; ++i) {
    const int first = 10 + 7 * i % 40, second = 10 + 11 * i % 40;
    rows += fmt::format("{{\"text\": \"5 {} 6 {} 7\", \"spans\": [[2, 4], [7, 9]], \"label\": \"{}\"}}\n", first,
                        second, second > first ? "up" : "none");
  }
  return rows;
}

FinetuneConfig relation_run(const TemporaryDirectory& directory, EntityMarkers markers, const char* name) {
  FinetuneConfig config = tiny_task_of(kClassesTask, directory);
  config.data.task.entity_markers = markers;
  config.data.task.negative_label = "none";
  config.run_directory = directory.path(name);
  config.data.train_file = config.data.dev_file = directory.path("relations.jsonl");
  std::ofstream(config.data.train_file) << relations();
  return config;
}

}  // namespace

TEST_CASE("The loss of several numbers is the mean of their squared errors", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = tiny_task_of(kRegressionTask, directory);
  const FinetuningStep step(config, {.kind = TaskKind::kRegression, .num_outputs = 2, .class_weights = {}}, at::kCPU,
                            nullptr);
  PackedBatch batch;
  batch.labels = at::tensor({1.F, 2.F, 3.F, 5.F}).view({2, 2});
  // By hand; transformers: MSELoss of logits and labels, without a squeeze.
  CHECK(step.loss(at::zeros({2, 2}), batch).item<double>() == Approx((1 + 4 + 9 + 25) / 4.0));
}

TEST_CASE("Several numbers are learnt, and go to transformers' files and back", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of(kRegressionTask, directory);
  std::ofstream rows(config.data.train_file = config.data.dev_file = directory.path("numbers.jsonl"));
  for (int i = 5; i < 25; ++i)
    rows << fmt::format("{{\"text\": \"{} {}\", \"label\": [{}, {}]}}\n", i, i, i % 2, -i % 2);
  rows.close();
  config.data.task.labels = {"odd", "even"};
  config.max_steps = 300;
  config.evaluate_every = 100;
  config.keep_best = true;
  config.metric_for_best_model = "mse";
  config.checkpoint_every = 0;
  REQUIRE(finetune(config, false) == kOk);
  const json summary = summary_of(config);
  CHECK(summary.at("best_mse").get<double>() < 0.2);  // the mean alone: 0.25
  CHECK(summary.at("mse").get<double>() == summary.at("best_mse").get<double>());
  CHECK(summary.at("mse_odd").get<double>() + summary.at("mse_even").get<double>() ==
        Approx(2 * summary.at("mse").get<double>()));
  CHECK(summary.contains("r2_even"));
  const std::string model = converted(config, directory);
  const json written = json_file(model + "/config.json");
  CHECK(written.at("problem_type") == "regression");
  CHECK(written.at("id2label") == json({{"0", "odd"}, {"1", "even"}}));
  const json last = evaluated(config, config.run_directory);
  CHECK(evaluated(config, model) == last);
  const auto answers = predict(model, {"--task", "text-classification", "5 5"});
  REQUIRE(answers.code == kOk);
  CHECK(json::parse(answers.out)["values"].size() == 2);
  config.class_weights = ClassWeights::kBalanced;
  config.run_directory += "-balanced";
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("class_weights: is balanced"));
}

TEST_CASE("Entities of spans are learnt, scored and predicted in their scheme", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of("ner", directory);
  std::ofstream rows(config.data.train_file = config.data.dev_file = directory.path("spans.jsonl"));
  for (int i = 10; i < 40; ++i)
    rows << fmt::format("{{\"text\": \"5 {} {} 6\", \"entities\": [[2, 7, \"X\"]]}}\n", i, i + 1);
  rows.close();
  config.data.task.label_scheme = LabelScheme::kIobes;
  config.max_steps = 40;
  config.checkpoint_every = 0;
  REQUIRE(finetune(config, false) == kOk);
  const json summary = summary_of(config);
  CHECK(summary.at("f1").get<double>() > 0.9);
  CHECK(load_pretrained(config.run_directory).model.labels ==
        std::vector<std::string>{"B-X", "E-X", "I-X", "O", "S-X"});
  const json metrics = evaluated(config, config.run_directory);
  CHECK(metrics["f1"] == summary["f1"]);
  const json of_export = evaluated(config, converted(config, directory));  // whose labels alone say the scheme
  CHECK(of_export["accuracy"] == metrics["accuracy"]);
  const auto answer =
      predict(config.run_directory, {"--task", "token-classification", "--aggregation", "first", "5 20 21 6"});
  REQUIRE(answer.code == kOk);
  const json entities = json::parse(answer.out)["entities"];
  REQUIRE(entities.size() == 1);
  CHECK(entities[0]["entity_group"] == "X");
  CHECK(entities[0]["start"] == 2);
  CHECK(entities[0]["end"] == 7);
}

TEST_CASE("Relations are learnt from the pooler and from start markers, and answered for spans and marks",
          "[unit][finetune]") {
  const TemporaryDirectory directory;
  const std::string asked = directory.path("asked.jsonl");
  std::ofstream(asked) << "{\"text\": \"5 12 6 44 7\", \"spans\": [[2, 4], [7, 9]]}\n"
                       << "{\"text\": \"5 [E1]12[/E1] 6 [E2]44[/E2] 7\"}\n";
  for (const EntityMarkers markers : {EntityMarkers::kCls, EntityMarkers::kStartMarkers}) {
    const bool start = markers == EntityMarkers::kStartMarkers;
    CAPTURE(start);
    FinetuneConfig config = relation_run(directory, markers, start ? "start" : "cls");
    config.max_steps = 200;
    config.optimizer.lr = 3e-3;
    config.checkpoint_every = 100;
    REQUIRE(finetune(config, false) == kOk);
    const json summary = summary_of(config);
    CHECK(summary.at("f1_micro").get<double>() > 0.8);
    CHECK(summary.at("recall").get<double>() > 0.7);
    const Pretrained trained = load_pretrained(config.run_directory);
    CHECK(trained.model.start_markers == start);
    CHECK(trained.model.config.vocab_size == bert::testing::kVocabulary + 4);
    CHECK(trained.model.vocabulary.back() == "[/E2]");
    CHECK(trained.weights.contains("bert.pooler.dense.weight") != start);
    CHECK(trained.weights.find("classifier.weight")->size(1) == (start ? 64 : 32));

    if (start) {
      FinetuneConfig student = relation_run(directory, EntityMarkers::kCls, "student");
      student.distillation.teacher = config.run_directory;
      CHECK_THAT(finetuning_refusal<ConfigError>(student),
                 Contains("reads the states of [E1] and [E2]; expected data.entity_markers start_markers, got cls"));
    }

    const std::vector<std::string> options = {"--task", "text-classification", "--input",
                                              asked,    "--text-field",        "text"};
    const auto said = predict(config.run_directory, options);
    CAPTURE(said.err);
    REQUIRE(said.code == kOk);
    const std::vector<json> answers = lines_of<json>(said.out);
    REQUIRE(answers.size() == 2);
    CHECK(answers[0]["score"].get<double>() == Approx(answers[1]["score"].get<double>()));
    CHECK(answers[0]["label"] == answers[1]["label"]);
    const auto unmarked = predict(config.run_directory, {"--task", "text-classification", "5 6"});
    CHECK(unmarked.code == kBadData);
    CHECK_THAT(unmarked.err, Contains("want one [E1] in the text, got 0"));

    CHECK_THAT(checkpoint_file(config, 200, "config.json"),
               Contains(start ? "BertForEntityMarkers" : "BertForSequenceClassification"));
    const std::string model = converted(config, directory);
    CHECK(json_file(model + "/config.json")["architectures"][0] ==
          (start ? "BertForEntityMarkers" : "BertForSequenceClassification"));
    CHECK(json_file(model + "/added_tokens.json").contains("[/E1]"));
    CHECK(lines_of<json>(predict(model, options).out) == answers);
    const json metrics = evaluated(config, config.run_directory);
    CHECK(metrics["f1_micro"] == summary["f1_micro"]);
    CHECK(evaluated(config, model, {"data.negative_label=none"}) == metrics);
    const auto exported = run_command(
        export_command, {"export", "--checkpoint", config.run_directory, "--output", directory.path("x.pt")});
    CAPTURE(exported.err);
    REQUIRE(exported.code == kOk);
    CHECK(lines_of<json>(predict(directory.path("x.pt"), options).out) == answers);
    std::filesystem::remove_all(model);
    std::filesystem::remove(directory.path("x.pt"));
  }
}

TEST_CASE("A new vocabulary without a marker is refused with its file and the marker", "[unit][finetune]") {
  std::vector<std::string> vocabulary = {"[PAD]", "[E1]", "the", "[/E1]", "[E2]"};
  CHECK(bert::testing::message_of<ConfigError>([&] { expect_entity_markers(vocabulary, "v.txt"); }) ==
        "data.entity_markers: v.txt lacks [/E2]; add the markers to it");
  vocabulary.emplace_back("[/E2]");
  CHECK_NOTHROW(expect_entity_markers(vocabulary, "v.txt"));
}

TEST_CASE("Markers that a vocabulary has are found in texts", "[unit][finetune]") {
  Pretrained start;
  start.model.vocabulary = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[E1]", "[/E1]", "[E2]", "[/E2]", "a"};
  start.tokenizer = std::make_shared<WordPieceTokenizer>(Vocabulary(start.model.vocabulary, "v.txt"));
  CHECK(add_entity_markers(start, 1) == 0);
  CHECK(start.tokenizer->encode("[E1]a[/E1]") == std::vector<int32_t>{5, 9, 6});
  CHECK(start.model.added_tokens.size() == 4);
}

TEST_CASE("Several seeds of relations have their precision and recall", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = relation_run(directory, EntityMarkers::kCls, "seeds");
  config.metric_for_best_model = "loss";
  config.keep_best = true;
  REQUIRE(finetune_seeds(config, 2, false) == kOk);
  for (const char* metric : {"f1_micro", "precision", "recall", "best_loss"})
    CHECK(summary_of(config).at(metric).at("values").size() == 2);
}

TEST_CASE("A run of start markers resumes to the same bits", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig straight = relation_run(directory, EntityMarkers::kStartMarkers, "straight"), parts = straight;
  parts.run_directory = directory.path("parts");
  REQUIRE(finetune(straight, false) == kOk);
  parts.stop_at_step = 2;
  parts.checkpoint_every = straight.checkpoint_every = 2;
  REQUIRE(finetune(parts, false) == kOk);
  parts.stop_at_step = 0;
  REQUIRE(finetune(parts, false) == kOk);
  for (const char* file : {"model.safetensors", "vocab.txt"})
    CHECK(checkpoint_file(parts, 4, file) == checkpoint_file(straight, 4, file));
}

TEST_CASE("The head of start markers reads the states of both, the first entity's first", "[unit][finetune]") {
  // By hand: rows 1 and 4 of the first sequence, rows 8 and 6 of the second.
  PackedBatch batch;
  batch.cu_seqlens = at::tensor({0, 5, 9}, at::kInt);
  batch.masked_positions = at::tensor({1, 4, 8, 6}, at::kLong);
  const at::Tensor states = at::tensor({0.F, 1.F, 2.F, 3.F, 4.F, 5.F, 6.F, 7.F, 8.F}).unsqueeze(1);
  CHECK(marker_states(states, batch).equal(at::tensor({1.F, 4.F, 8.F, 6.F}).view({2, 2})));
  TaskFeatures features;
  features.num_outputs = 2;
  features.start_markers = true;
  for (const auto& [length, first, second] : {std::tuple(5, 1, 4), std::tuple(4, 3, 1)}) {
    TaskSequence& sequence = features.sequences.emplace_back();
    sequence.input_ids.assign(static_cast<size_t>(length), 5);
    sequence.token_type_ids.assign(static_cast<size_t>(length), 0);
    sequence.label = 0;
    sequence.start_position = first;
    sequence.end_position = second;
  }
  const std::vector<int64_t> both = {0, 1};
  CHECK(pack_task_sequences(features, 1, both, both).masked_positions.equal(batch.masked_positions));
}

TEST_CASE("A request for a relation has a marked text, or a text and two spans", "[unit][serve]") {
  PredictRequestRules rules;
  rules.form = InputForm::kMarkedText;
  const auto text_of = [&](const std::string& body) {
    return parse_predict_request(json::parse(body), rules).inputs.front().text;
  };
  CHECK(text_of(R"({"inputs": "[E1]a[/E1] [E2]b[/E2]"})") == "[E1]a[/E1] [E2]b[/E2]");
  CHECK(text_of(R"({"inputs": {"text": "a b", "spans": [[0, 1], [2, 3]]}})") == "[E1]a[/E1] [E2]b[/E2]");
  CHECK_THROWS_WITH(text_of(R"({"inputs": {"text": "a b", "spans": [[0, 1], [2, 4]]}})"),
                    Contains("inputs: \"spans\": the span [2, 4] is empty or outside of the text"));
  CHECK_THROWS_WITH(text_of(R"({"inputs": {"text": "a b"}})"), Contains("want a list of two spans"));
  CHECK_THROWS_WITH(text_of(R"({"inputs": 3})"), Contains("want a text with [E1], [/E1], [E2] and [/E2], or"));
}

TEST_CASE("Flat files of SQuAD train, are scored and predicted as nested ones", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig nested = tiny_task_of("squad-v1", directory), flat = nested;
  flat.run_directory = directory.path("flat");
  flat.data.train_file = flat.data.dev_file = directory.path("flat.jsonl");
  const std::string start = R"({"context": "5 6 7 8 9 10 11 12 13 14 15 16", )";
  std::ofstream(flat.data.train_file)
      << start << R"("id": "a", "question": "20 21", "answers": {"text": ["7 8"], "answer_start": [4]}})"
      << "\n"
      << start << R"("id": "b", "question": "22", "answers": {"text": ["12"], "answer_start": [17]}})"
      << "\n";
  REQUIRE(finetune(nested, false) == kOk);
  REQUIRE(finetune(flat, false) == kOk);
  CHECK(checkpoint_file(flat, 4, "model.safetensors") == checkpoint_file(nested, 4, "model.safetensors"));
  const std::string predictions = flat.run_directory + "/predictions.json";
  CHECK(read_file(predictions) == read_file(nested.run_directory + "/predictions.json"));
  const auto scored = run_command(evaluate_command,
                                  {"evaluate", "squad", "--dataset", flat.data.dev_file, "--predictions", predictions});
  REQUIRE(scored.code == kOk);
  CHECK(json::parse(scored.out)["f1"] == summary_of(nested)["f1"]);
  CHECK(evaluated(flat, flat.run_directory)["f1"] == summary_of(nested)["f1"]);
  const auto answers = predict(flat.run_directory, {"--task", "question-answering", "--input", flat.data.dev_file,
                                                    "--text-field", "context", "--pair-field", "question"});
  REQUIRE(answers.code == kOk);
  CHECK(lines_of<json>(answers.out)[1]["id"] == "b");
}

TEST_CASE("XNLI trains on one language and is scored on another", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of(kClassesTask, directory);
  config.task = "xnli";
  config.data.directory = directory.path();
  config.data.train_file = config.data.dev_file = "";
  config.data.task.language = "de";
  config.data.task.train_language = "en";
  std::ofstream train(directory.path("multinli.train.en.tsv")), dev(directory.path("xnli.dev.tsv"));
  train << "premise\thypo\tlabel\n";
  dev << "language\tgold_label\tsentence1\tsentence2\tpairID\n";
  for (int i = 5; i < 15; ++i) {
    train << i << "\t" << i + 1 << "\t" << (i % 2 == 0 ? "contradictory" : "neutral") << "\n";
    for (const char* language : {"en", "de"}) dev << language << "\tneutral\t" << i << "\t20\t" << i << "\n";
  }
  train.close();
  dev.close();
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_of(config).contains("accuracy"));
  CHECK(read_file(config.run_directory + "/dev_predictions.tsv").size() > 50);
  const auto rows = read_file(config.run_directory + "/dev_predictions.tsv");
  CHECK(std::count(rows.begin(), rows.end(), '\n') == 11);  // those of one language
}
