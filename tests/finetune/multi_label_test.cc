// Fine-tuning on independent labels: its loss, its thresholds, and its model in transformers' files.
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/finetune/finetuning_inputs.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/finetuning_step.h"
#include "app/inference/pretrained.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "data/loader/task_loader.h"
#include "tests/support/command_testing.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task_of;
using nlohmann::json;

namespace {

json json_file(const std::string& path) { return json::parse(read_file(path)); }

/// Three sequences with the labels {0, 2}, {} and {1}.
TaskFeatures three_sequences() {
  TaskFeatures features;
  features.num_outputs = 3;
  features.multi_label = true;
  for (const std::vector<int32_t>& labels : {std::vector<int32_t>{0, 2}, {}, {1}}) {
    TaskSequence& sequence = features.sequences.emplace_back();
    sequence.input_ids = {2, 5, 3};
    sequence.token_type_ids = {0, 0, 0};
    sequence.labels = labels;
  }
  return features;
}

}  // namespace

TEST_CASE("The loss of independent labels is binary cross entropy with weights of the yes", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = tiny_task_of(kMultiLabelTask, directory);
  const TaskFeatures features = three_sequences();
  const std::vector<int64_t> all = {0, 1, 2};
  const PackedBatch batch = pack_task_sequences(features, 1, all, all);
  CHECK(batch.labels.equal(at::tensor({1.F, 0.F, 1.F, 0.F, 0.F, 0.F, 0.F, 1.F, 0.F}).view({3, 3})));
  // By hand: with logits 0 every term is log 2. Of 9 terms, 3 are of a yes.
  TaskHead head{.num_outputs = 3, .class_weights = {}, .multi_label = true};
  const double log2 = std::log(2.0);
  FinetuningStep plain(config, head, at::kCPU, nullptr);
  CHECK(plain.loss(at::zeros({3, 3}), batch).item<double>() == Approx(log2));
  CHECK(plain.labels_of(batch).item<double>() == 3);
  head.class_weights = {3, 1, 5};
  FinetuningStep weighted(config, head, at::kCPU, nullptr);
  CHECK(weighted.loss(at::zeros({3, 3}), batch).item<double>() == Approx(log2 * (6 + 3 + 1 + 5) / 9));
  CHECK(balanced_class_weights(features) == std::vector<float>{2, 2, 2});  // two without the label, one with it
}

TEST_CASE("Independent labels are learnt, and their thresholds are searched and kept", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of(kMultiLabelTask, directory);
  config.max_steps = 150;
  config.checkpoint_every = 0;
  config.data.task.search_label_threshold = ThresholdSearch::kPerLabel;
  config.data.test_file = directory.path("test.csv");
  std::ofstream(config.data.test_file) << "text\n6 7\n5 6\n";
  REQUIRE(finetune(config, false) == kOk);
  const json summary = json_file(config.run_directory + "/summary.json");
  for (const char* metric : {"f1_micro", "f1_macro", "average_precision", "label_ranking_average_precision"}) {
    CAPTURE(metric);
    CHECK(summary.at(metric).get<double>() > 0.7);  // both labels for every text: 0.57, 0.56 and 0.4
  }
  CHECK(summary.at("f1_samples").get<double>() <= 0.6);  // as scikit-learn, 0 for the 4 of 10 texts without a label
  CHECK_THAT(read_file(config.run_directory + "/test_predictions.tsv"),
             Contains("index\tprediction\tscore:even\tscore:three\n0\t") && Contains("\n1\t"));
  const Pretrained trained = load_pretrained(config.run_directory);
  CHECK(trained.model.multi_label);
  CHECK(trained.model.labels == std::vector<std::string>{"even", "three"});
  REQUIRE(trained.model.task_data);
  const std::vector<double> thresholds = {summary.at("label_threshold_even").get<double>(),
                                          summary.at("label_threshold_three").get<double>()};
  CHECK(trained.model.label_thresholds == thresholds);
  CHECK(trained.model.task_data->search_label_threshold == ThresholdSearch::kNone);

  const json written = json_file(config.run_directory + "/latest/config.json");
  CHECK(written.at("problem_type") == "multi_label_classification");
  CHECK(written.at("id2label") == json({{"0", "even"}, {"1", "three"}}));
  const std::string model = directory.path("hf");
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", config.run_directory, "--output", model})
              .code == kOk);
  json file = json_file(model + "/config.json");
  CHECK(file.at("label_thresholds") == json(thresholds));
  CHECK(written.at("label_thresholds") == json(thresholds));
  file.erase("finetuning_task");  // as transformers writes the file
  std::ofstream(model + "/config.json") << file;
  const Pretrained read = load_pretrained(model);
  CHECK(read.model.task == kMultiLabelTask);
  CHECK(read.model.multi_label);
  const std::string exported = directory.path("model.pt"), converted = directory.path("converted");
  REQUIRE(run_command(export_command, {"export", "--checkpoint", config.run_directory, "--output", exported}).code ==
          kOk);
  REQUIRE(run_command(convert_command, {"convert", "--from", "huggingface", "--input", model, "--output", converted})
              .code == kOk);
  for (const std::string& one : {config.run_directory, model, exported, converted}) {
    const auto scored = run_command(
        evaluate_torch_command, {"evaluate", kMultiLabelTask, "--dataset", config.data.dev_file, "--checkpoint", one});
    CAPTURE(one, scored.err);
    REQUIRE(scored.code == kOk);
    for (const char* metric : {"average_precision", "f1_micro"})
      CHECK(json::parse(scored.out).at(metric).get<double>() == Approx(summary.at(metric).get<double>()));
  }
  const auto strict =
      run_command(evaluate_torch_command, {"evaluate", kMultiLabelTask, "--dataset", config.data.dev_file,
                                           "--checkpoint", model, "data.label_threshold=0.999999"});
  REQUIRE(strict.code == kOk);
  CHECK(json::parse(strict.out).at("f1_micro").get<double>() < 0.5 * summary.at("f1_micro").get<double>());
  const std::string own = directory.path("own");  // a checkpoint of the run's goes on with its texts
  REQUIRE(run_command(convert_command, {"convert", "--vocab", config.run_directory + "/latest/vocab.txt", "--input",
                                        config.run_directory, "--output", own})
              .code == kOk);
  const Pretrained again = load_pretrained(own);
  REQUIRE(again.model.task_data);
  CHECK(again.model.task_data->max_seq_length == trained.model.task_data->max_seq_length);
  CHECK(again.model.label_thresholds == thresholds);
  file["label_thresholds"] = json::array({0.5});
  std::ofstream(model + "/config.json") << file;
  CHECK_THAT(bert::testing::message_of<DataError>([&] { load_pretrained(model); }),
             Contains("has 1 label_thresholds; expected one for each of 2 labels"));
  file["label_thresholds"] = json::array({"x"});
  std::ofstream(model + "/config.json") << file;
  CHECK_THAT(bert::testing::message_of<DataError>([&] { load_pretrained(model); }),
             Contains("\"label_thresholds\" has \"x\"; expected a number for each label"));
}

TEST_CASE("A configuration of label columns is refused beside another task", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of("text-classification", directory);
  config.data.task.label_columns = {"a", "b"};
  const std::string path = directory.path("c.json");
  std::ofstream(path) << to_json(config);
  const std::string message = bert::testing::message_of<ConfigError>([&] { load_finetune_config(path); });
  CHECK_THAT(message, Contains("/data/label_columns") &&
                          Contains("want task multi-label-classification or text-regression with it"));
}
