// bert finetune on the device: losses, figures and predictions of the CPU for every kind of task, and runs that are killed
// or moved.
#include <c10/util/Logging.h>  // it defines CHECK too

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/system/exit_codes.h"
#include "tests/support/device_under_test.h"
#include "tests/support/tiny_distillation.h"
#include "tests/support/tiny_finetuning.h"
// The last include: it includes Catch2.
#include "tests/null_device/tests/run_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// The few examples of a task as GLUE's files, in a directory of their own.
std::string glue_directory(const TemporaryDirectory& directory, const std::string& task) {
  const std::string path = directory.path(task + "-files");
  std::filesystem::create_directory(path);
  for (const char* file : {"/train.tsv", "/dev.tsv"}) {
    std::ofstream table(path + file);
    table << (task == "stsb" ? "index\tsentence1\tsentence2\tscore\n" : "sentence\tlabel\n");
    for (int i = 5; i < 15; ++i) {
      if (task == "stsb") {
        table << i << "\t" << i << " " << i + 1 << "\t" << 2 * i << "\t" << 0.25 * i << "\n";
      } else {
        table << i << " " << i + 1 << "\t" << i % 2 << "\n";
      }
    }
  }
  return path;
}

/// Four steps with an evaluation in between, without attention dropout (runs_test.cc).
FinetuneConfig short_task(const TemporaryDirectory& directory, const std::string& task) {
  const bool glue = task == "sst2" || task == "stsb";
  FinetuneConfig config = tiny_task_of(glue ? "text-classification" : task, directory);
  if (glue) {
    config.task = task;
    config.data = TaskFilesConfig();
    config.data.directory = glue_directory(directory, task);
    config.data.task.max_seq_length = kLength;
  }
  config.run_directory = directory.path(task);
  config.micro_batch_size = 2;
  config.log_every = 1;
  config.checkpoint_every = 2;
  config.evaluate_every = 2;
  config.report = {"jsonl"};
  config.model.attention_probs_dropout_prob = 0;
  return config;
}

/// The cells of a file: words and numbers as JSON values.
nlohmann::json cells_of(const std::string& text) {
  nlohmann::json cells = nlohmann::json::array();
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    nlohmann::json value = nlohmann::json::parse(word, nullptr, /*allow_exceptions=*/false);
    cells.push_back(value.is_number() ? std::move(value) : nlohmann::json(word));
  }
  return cells;
}

/// The first difference of the files of predictions and figures of two runs.
std::string difference_of_files(const std::string& got, const std::string& want, Tolerance limit) {
  int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(want)) {
    const std::string name = entry.path().filename(), extension = entry.path().extension();
    if (!entry.is_regular_file() || name == "config.json" || name == "attempts.jsonl" || name == "metrics.jsonl")
      continue;
    if (extension != ".json" && extension != ".tsv" && extension != ".txt") continue;
    const auto value = [&, extension = extension](const std::string& directory) {
      const std::string text = read_file(directory + "/" + name);
      nlohmann::json parsed = extension == ".json" ? nlohmann::json::parse(text) : cells_of(text);
      if (parsed.is_object()) parsed.erase("config_sha256");
      return parsed;
    };
    std::string found = difference(value(got), value(want), limit);
    if (!found.empty()) return name + found;
    ++files;
  }
  return files >= 2 ? "" : "there are no predictions";
}

/// Trains on the CPU and on the device in fp32, and returns the first difference of what both write.
std::string difference_to_cpu(FinetuneConfig config) {
  const std::string name = config.run_directory;
  for (const char* device : {"cpu", "cuda"}) {
    config.device = value_named<DeviceChoice>(device).value();
    config.run_directory = name + "-" + device;
    REQUIRE(finetune(config, false) == kOk);
  }
  std::string found = difference_of_runs(name + "-cuda", name + "-cpu", kLosses);
  return found.empty() ? difference_of_files(name + "-cuda", name + "-cpu", kAnswers) : found;
}

}  // namespace

TEST_CASE("Fine-tuning on CUDA has the losses and predictions of the CPU, for every kind of task", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const char* task : {"squad-v1", "squad-v2", "sst2", "stsb", "ner", "swag"}) {
    INFO(task);
    FinetuneConfig config = short_task(directory, task);
    if (task == std::string("sst2")) config.class_weights = ClassWeights::kBalanced;
    if (task == std::string("ner")) config.optimizer.average = GradientAverage::kMaskedTokens;
    CHECK(difference_to_cpu(config) == "");
  }
}

TEST_CASE("Fine-tuning on CUDA is near that on the CPU in every precision", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  for (const FinetuneConfig& kind : tiny_kinds(directory)) {
    INFO(kind.run_directory);
    FinetuneConfig config = kind;
    config.max_steps = 2;
    config.log_every = 1;
    config.evaluate_every = 1;
    config.model.attention_probs_dropout_prob = 0;
    const std::string name = config.run_directory;
    for (const char* on : {"cpu", "cuda"}) {
      config.device = value_named<DeviceChoice>(on).value();
      config.run_directory = name + "-" + on;
      REQUIRE(finetune(config, false) == kOk);
    }
    const auto losses = [&](const char* on) {
      std::vector<double> result;
      for (const nlohmann::json& line : metrics_of(name + "-" + on)) {
        if (line.contains("loss")) result.push_back(line.at("loss"));
      }
      return result;
    };
    REQUIRE(losses("cuda").size() == 2);
    CHECK(difference(losses("cuda"), losses("cpu"), kBFloat16) == "");
  }
}

TEST_CASE("Distillation on CUDA has the losses and predictions of the CPU", "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_distillation(directory, "student");
  config.max_steps = 4;
  config.log_every = 1;
  config.distillation.hidden_weight = config.distillation.attention_weight = 0.5;
  config.model.attention_probs_dropout_prob = 0;
  CHECK(difference_to_cpu(config) == "");
}

TEST_CASE("Fine-tuning on CUDA that is killed ends in the same bytes, and it may change to the CPU and back",
          "[cuda]") {
  BERT_DEVICE_OR_SKIP(device);
  const TemporaryDirectory directory;
  FinetuneConfig whole = short_task(directory, "sst2");
  whole.device = DeviceChoice::kCuda;
  whole.run_directory = directory.path("whole");
  FinetuneConfig killed = whole, moved = whole;
  killed.run_directory = directory.path("killed");
  REQUIRE(finetune(whole, false) == kOk);
  for (const char* point : {"update:3", "checkpoint.renamed:1"}) {
    CAPTURE(point);
    CHECK(Twin("bert", {"finetune", file_of(killed)}, {{"BERT_FAIL_POINT", point}}).wait() == 1000 + SIGKILL);
  }
  REQUIRE(finetune(killed, false) == kOk);
  for (const char* file : {kModelFile, kOptimizerFile})
    CHECK(checkpoint_file(whole, 4, file) == checkpoint_file(killed, 4, file));

  for (const auto& [first, second] : {std::pair{"cpu", "cuda"}, std::pair{"cuda", "cpu"}}) {
    INFO("from " << first << " to " << second);
    moved.run_directory = directory.path(std::string("from-") + first);
    moved.device = value_named<DeviceChoice>(first).value();
    moved.stop_at_step = 2;
    REQUIRE(finetune(moved, false) == kOk);
    moved.device = value_named<DeviceChoice>(second).value();
    moved.stop_at_step = 0;
    REQUIRE(finetune(moved, false) == kOk);
    CHECK(difference_of_runs(moved.run_directory, whole.run_directory, kLosses) == "");
  }
}
