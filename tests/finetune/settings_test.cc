// Settings of fine-tuning: the metric of the best checkpoint, smoothed labels, the number of examples.
#include <ATen/ops/tensor.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "app/finetune/finetuning_run.h"
#include "app/finetune/finetuning_step.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::checkpoint_file;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task;
using bert::testing::tiny_task_of;
using nlohmann::json;

namespace {

json summary_file(const FinetuneConfig& config) {
  return json::parse(read_file(config.run_directory + "/summary.json"));
}

}  // namespace

TEST_CASE("metric_for_best_model chooses the best checkpoint, the least loss too", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "loss");
  config.evaluate_every = 2;
  config.keep_best = true;
  config.metric_for_best_model = "loss";
  REQUIRE(finetune(config, false) == kOk);
  double least = 1e9, step = 0;
  for (const json& object : bert::testing::metrics_of(config.run_directory)) {
    if (!object.contains("evaluation") || object["evaluation"]["loss"].get<double>() >= least) continue;
    least = object["evaluation"]["loss"];
    step = object["step"];
  }
  const json summary = summary_file(config);
  CHECK(summary.at("best_loss").get<double>() == Approx(least));
  CHECK(summary.at("best_step") == step);
  CHECK_FALSE(summary.contains("best_accuracy"));
  config = tiny_task_of("ner", directory);
  config.evaluate_every = 2;
  config.keep_best = true;
  config.metric_for_best_model = "recall";
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_file(config).at("best_recall") == summary_file(config).at("recall"));
  config.run_directory += "-wrong";
  config.metric_for_best_model = "bleu";
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("metric_for_best_model: is bleu; task ner has f1, precision, recall, accuracy, loss"));
  config = tiny_task_of("squad-v1", directory);
  config.evaluate_every = 2;
  config.keep_best = true;
  config.metric_for_best_model = "loss";
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("task squad-v1 has f1, exact_match"));
}

TEST_CASE("label_smoothing spreads a share of the label over all classes", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.label_smoothing = 0.2;
  TaskHead head{.num_outputs = 2, .class_weights = {}};
  FinetuningStep step(config, head, at::kCPU, nullptr);
  PackedBatch batch;
  batch.labels = at::tensor({int64_t{0}});
  // By hand: the probabilities are 3/4 and 1/4, and the target 0.9 and 0.1.
  const double want = -0.9 * std::log(0.75) - 0.1 * std::log(0.25);
  CHECK(step.loss(at::tensor({std::log(3.0F), 0.0F}).view({1, 2}), batch).item<double>() == Approx(want));
  config = tiny_task_of("text-regression", directory);
  config.label_smoothing = 0.1;
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("label_smoothing: is 0.1") && Contains("text-regression"));
}

TEST_CASE("max_train_examples trains on the first examples of the file", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig first = tiny_task(directory, "first"), cut = tiny_task(directory, "cut");
  first.max_train_examples = 40;
  std::istringstream lines(read_file(directory.path("train.csv")));
  std::ofstream table(cut.data.train_file = directory.path("cut.csv"));
  std::string line;
  for (int row = 0; row <= 40 && std::getline(lines, line); ++row) table << line << '\n';  // with the header
  table.close();
  for (const FinetuneConfig* config : {&first, &cut}) REQUIRE(finetune(*config, false) == kOk);
  CHECK(checkpoint_file(first, 12, "model.safetensors") == checkpoint_file(cut, 12, "model.safetensors"));
  CHECK_THAT(read_file(first.run_directory + "/run.log"), Contains("40 training examples in 40 sequences"));
}

TEST_CASE("A run without a development file trains without evaluations, and predicts its test file",
          "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task_of("embedding", directory);
  config.data.dev_file = "";
  config.data.directory = directory.path("nowhere");  // of a recipe
  config.evaluate_every = 2;
  std::ofstream(config.data.train_file = directory.path("texts.tsv")) << "text\n5 6\n7 8\n9 10\n11 12\n13 14\n";
  config.embedding.sets = {{}};
  config.embedding.sampling = SetSampling::kProportional;
  REQUIRE(finetune(config, false) == kOk);
  CHECK_THAT(read_file(config.run_directory + "/run.log"),
             Contains("no evaluation: there is no development file; data.dev_file names one"));
  for (const json& line : bert::testing::metrics_of(config.run_directory)) CHECK_FALSE(line.contains("evaluation"));
  config.keep_best = true;
  config.run_directory += "-best";
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("keep_best: is set, and there is no development file"));

  config = tiny_task_of("text-classification", directory);
  config.evaluate_every = 2;
  REQUIRE(finetune(config, false) == kOk);
  FinetuneConfig blind = config;
  blind.data.test_file = std::exchange(blind.data.dev_file, "");
  blind.run_directory += "-blind";
  REQUIRE(finetune(blind, false) == kOk);
  CHECK(checkpoint_file(blind, 4, "model.safetensors") == checkpoint_file(config, 4, "model.safetensors"));
  CHECK(read_file(blind.run_directory + "/test_predictions.tsv") ==
        read_file(config.run_directory + "/dev_predictions.tsv"));
  CHECK(summary_file(blind)["test_accuracy"] == summary_file(config)["accuracy"]);
  blind.data.directory = directory.path("half");
  std::filesystem::create_directory(blind.data.directory);
  std::filesystem::copy(std::exchange(blind.data.train_file, ""), blind.data.directory + "/train.csv");
  CHECK_THAT(finetuning_refusal<InputMissing>(blind), Contains("half has no dev file of task text-classification"));
}
