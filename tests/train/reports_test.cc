// The reports of runs: their files beside metrics.jsonl, over stops and ranks, and for both kinds of runs.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/finetune/finetuning_run.h"
#include "app/inference/predictor.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/places.h"
#include "tests/support/lines.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/report_readers.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::json_lines;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::tiny_task;
using Json = nlohmann::json;

namespace {

std::vector<Json> lines_of(const RunConfig& config, const std::string& name) {
  return json_lines<Json>(std::ifstream(config.run_directory + "/" + name));
}

/// The steps of the lines, in their order.
std::vector<int64_t> steps_of(const std::vector<Json>& lines) {
  std::vector<int64_t> steps;
  for (const Json& line : lines) steps.push_back(line.at("step").get<int64_t>());
  return steps;
}

std::string file_of(const RunConfig& config, int64_t step, const std::string& name) {
  return read_file(checkpoint_directory(config.run_directory, step) + "/" + name);
}

/// `config` with every report but the port and the samples.
template <class Config>
Config with_all_reports(Config config) {
  config.report = {"console", "jsonl", "tensorboard", "dllogger", "mlperf", "layers", "histograms"};
  config.evaluate_every = 4;
  return config;
}

std::vector<std::string> event_files(const RunConfig& config) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(config.run_directory + "/report/tensorboard"))
    files.push_back(entry.path().filename().string());
  return files;
}

}  // namespace

TEST_CASE("Every report of a run says the same, and changes no bit of the result", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig plain = tiny(directory, "plain"), all = with_all_reports(tiny(directory, "all"));
  plain.evaluate_every = 4;
  plain.report = {"jsonl"};
  for (PretrainConfig* config : {&plain, &all}) {
    config->optimizer.type = OptimizerType::kLamb;
    REQUIRE(pretrain(*config, false) == kOk);
  }
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK(file_of(plain, 12, name) == file_of(all, 12, name));
  CHECK_FALSE(std::filesystem::exists(plain.run_directory + "/report"));
  CHECK_FALSE(std::filesystem::exists(plain.run_directory + "/layers.jsonl"));
  CHECK(lines_of(plain, "metrics.jsonl").size() == lines_of(all, "metrics.jsonl").size());

  const std::vector<Json> metrics = lines_of(all, "metrics.jsonl");
  CHECK_THAT(read_file(all.run_directory + "/report/dllogger.json"),
             Contains("\"average_loss\":" + metrics[1].at("loss").dump()));
  if (!testing::python_of("BERT_MLPERF_PYTHON").empty())
    CHECK_NOTHROW(testing::check_with_mlperf(all.run_directory + "/report/mlperf.log"));
}

TEST_CASE("layers.jsonl has norms and LAMB's trust ratio at every evaluation", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.evaluate_every = 8;
  config.report.emplace_back("layers");
  config.optimizer.type = OptimizerType::kLamb;
  REQUIRE(pretrain(config, false) == kOk);
  const std::vector<Json> lines = lines_of(config, "layers.jsonl");
  CHECK(steps_of(lines) == std::vector<int64_t>{0, 8, 12});
  const std::string name = "bert.encoder.layer.0.attention.self.query.weight";
  for (const Json& line : lines) {
    std::set<std::string> names;
    for (const Json& layer : line.at("layers")) {
      names.insert(layer.at("name").get<std::string>());
      CHECK(layer.at("update_norm").is_null() == (line.at("step") == 0));
      CHECK(layer.at("trust_ratio").is_null() == (line.at("step") == 0));
      if (layer.at("name") != name || line.at("step") == 0) continue;
      const double weight = layer.at("weight_norm").get<double>(), update = layer.at("update_norm").get<double>();
      CHECK(weight > 0);
      CHECK(layer.at("trust_ratio").get<double>() == Approx(weight / update));
    }
    CHECK(names.size() == line.at("layers").size());
    CHECK(names.contains("cls.predictions.bias"));
  }
}

TEST_CASE("answers.jsonl has the same sentences at every evaluation, answered by the model of that step",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.evaluate_every = 4;
  config.stop_at_step = 8;
  REQUIRE(pretrain(config, false) == kOk);
  config.stop_at_step = 0;
  REQUIRE(pretrain(config, false) == kOk);
  const std::vector<Json> lines = lines_of(config, "answers.jsonl");
  CHECK(steps_of(lines) == std::vector<int64_t>{0, 4, 8, 12});
  const Predictor predictor(config.run_directory);
  for (size_t i = 0; i < lines.back().at("answers").size(); ++i) {
    const Json& answer = lines.back().at("answers")[i];
    for (const Json& line : lines) {
      CHECK(line.at("answers")[i].at("text") == answer.at("text"));
      CHECK(line.at("answers")[i].at("expected") == answer.at("expected"));
    }
    // The numbers of a counting text follow one another: the expected token comes after the one before the mask.
    std::istringstream words(answer.at("text").get<std::string>());
    std::string before, word;
    while (words >> word && word != "[MASK]") before = word;
    CHECK(answer.at("expected") == std::to_string(5 + (std::stoi(before) - 5 + 1) % 50));
    const MaskFilling filling = predictor.fill_mask(answer.at("text").get<std::string>());
    REQUIRE(filling.masks.size() == 1);
    REQUIRE(answer.at("fillers").size() == 5);
    for (size_t filler = 0; filler < 5; ++filler) {
      CHECK(answer.at("fillers")[filler].at("token_str") == filling.masks[0][filler].token_str);
      CHECK(answer.at("fillers")[filler].at("score").get<double>() ==
            Approx(filling.masks[0][filler].score).epsilon(1e-4));
    }
  }
  CHECK(lines.back().at("answers").size() == 20);
}

TEST_CASE("attempts.jsonl has every process of a run, and how it ended", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.max_steps = 600;
  config.checkpoint_every = 4;
  REQUIRE(run_in_child(config, "train.step:6") == 1000 + SIGKILL);
  const pid_t pid = start(config);
  const std::string metrics = config.run_directory + "/metrics.jsonl";
  const auto logged = [&] { return std::filesystem::file_size(metrics); };
  const auto before = logged();
  for (int i = 0; i < 2000 && logged() <= before; ++i) usleep(5000);
  kill(pid, SIGTERM);
  REQUIRE(result_of(pid) == kPreempted);
  const int64_t stopped = list_checkpoints(config.run_directory).back().step;
  config.stop_at_step = stopped + 2;
  REQUIRE(run_in_child(config) == kOk);
  REQUIRE(run_in_child(config) == kOk);  // it trains nothing
  config.stop_at_step = 0;
  REQUIRE(run_in_child(config) == kOk);

  const std::vector<Json> attempts = lines_of(config, "attempts.jsonl");
  std::vector<std::string> events;
  for (const Json& line : attempts) {
    events.push_back(line.at("event").get<std::string>() + " " + std::to_string(line.at("step").get<int64_t>()) +
                     (line.contains("reason") ? " " + line.at("reason").get<std::string>() : ""));
  }
  const std::string at = std::to_string(stopped), later = std::to_string(stopped + 2);
  CHECK(events == std::vector<std::string>{"begin 0", "begin 4", "end " + at + " SIGTERM", "begin " + at,
                                           "end " + later + " stopped at stop_at_step", "begin " + later,
                                           "end 600 finished"});
  CHECK(attempts[2].at("exit_code") == kPreempted);
  CHECK(attempts.back().at("exit_code") == kOk);
  const Json& begin = attempts[1];
  CHECK(begin.at("command") == Json({"bert", "pretrain", config.run_directory + ".json"}));
  CHECK(begin.at("device") == "cpu");
  CHECK(begin.at("pid") == pid);
  CHECK(begin.at("world_size") == 1);
  CHECK(begin.at("precision") == "fp32");
  CHECK_FALSE(begin.at("host").get<std::string>().empty());
  CHECK(begin.at("libtorch").get<std::string>().find('.') != std::string::npos);
}

TEST_CASE("attempts.jsonl takes any command line, and loses the damaged lines of earlier processes",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.report = {"jsonl"};
  const std::string file = directory.path("run\xff.json");  // a name that is no UTF-8
  std::ofstream(file) << to_json(config);
  std::filesystem::create_directories(config.run_directory);
  std::ofstream(config.run_directory + "/attempts.jsonl") << R"({"event": "begin", "step": 0})"
                                                          << "\n"
                                                          << R"({"event": "be)"
                                                          << "\n"
                                                          << R"({"ev)";
  CHECK(testing::output_of("'" BERT_EXECUTABLE "' pretrain '" + file + "' 2>&1").empty());
  const std::vector<Json> attempts = lines_of(config, "attempts.jsonl");
  REQUIRE(attempts.size() == 3);
  CHECK(attempts[0] == Json({{"event", "begin"}, {"step", 0}}));
  CHECK(attempts[1].at("command").back() == directory.path("run\uFFFD.json"));
  CHECK(attempts[2].at("reason") == "finished");
}

TEST_CASE("An error ends an attempt with its message", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.precision = Precision::kFp16;
  config.amp.init_scale = 65536.0 * 65536.0;  // every step overflows
  config.amp.dynamic = false;
  config.amp.max_consecutive_skips = 3;
  CHECK_THROWS(pretrain(config, false));
  const Json end = lines_of(config, "attempts.jsonl").back();
  CHECK(end.at("event") == "end");
  CHECK(end.at("exit_code") == kBadConfiguration);
  CHECK_THAT(end.at("reason").get<std::string>(), Contains("3 steps in a row were skipped"));
}

TEST_CASE("TensorBoard finds the numbers of metrics.jsonl, and histograms, over a kill", "[unit][trainer]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = with_all_reports(tiny(directory, "run"));
  REQUIRE(run_in_child(config, "train.step:7") == 1000 + SIGKILL);
  REQUIRE(run_in_child(config) == kOk);
  CHECK(event_files(config).size() == 2);
  if (testing::python_of("BERT_TENSORBOARD_PYTHON").empty())
    BERT_SKIP("BERT_TENSORBOARD_PYTHON does not name a Python with tensorboard");
  const Json found = testing::read_with_tensorboard(config.run_directory + "/report/tensorboard");
  const auto check = [&](const std::string& tag, int64_t step, double value) {
    CAPTURE(tag, step);
    int64_t times = 0;
    for (const Json& point : found.at("scalars").at(tag)) {
      if (point[0] != step) continue;
      ++times;
      CHECK(point[1].get<double>() == Approx(value).epsilon(1e-6));
    }
    CHECK(times == 1);
  };
  for (const Json& line : lines_of(config, "metrics.jsonl")) {
    const auto step = line.at("step").get<int64_t>();
    if (line.contains("evaluation")) {
      for (const auto& [key, value] : line.at("evaluation").items()) check("eval/" + key, step, value.get<double>());
    } else {
      for (const char* key : {"loss", "mlm_loss", "nsp_loss", "learning_rate", "grad_norm", "sequences_per_second"})
        check(std::string("train/") + key, step, line.at(key).get<double>());
    }
  }
  CHECK(found.at("scalars").contains("train/train_samples_per_second"));
  CHECK(found.at("hparams").at("optimizer.type") == "adamw");
  const Json& weights = found.at("histograms").at("weights/bert.encoder.layer.0.attention.self.query.weight");
  CHECK(weights.size() == 4);  // 0, 4, 8, 12
  CHECK(weights[3][1] == 32 * 32);
  CHECK(found.at("histograms").at("gradients/bert.encoder.layer.0.attention.self.query.weight").size() >= 3);
}

TEST_CASE("Without console a run says nothing on standard error", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run");
  config.evaluate_every = 4;
  config.report = {"jsonl"};
  std::ofstream(directory.path("run.json")) << to_json(config);
  CHECK(testing::output_of("'" BERT_EXECUTABLE "' pretrain '" + directory.path("run.json") + "' 2>&1").empty());
  CHECK_THAT(read_file(config.run_directory + "/run.log"), Contains("finished step 12"));
}

TEST_CASE("A report that cannot be written ends the run before or after a checkpoint, with 74", "[unit][trainer]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  std::filesystem::create_directories(config.run_directory);
  std::ofstream(config.run_directory + "/report") << "in the way";
  CHECK_THROWS_AS(finetune(config, false), IoError);
  std::filesystem::remove(config.run_directory + "/report");
  config.report.emplace_back("layers");
  config.max_steps = 100000;
  config.log_every = 1;
  config.checkpoint_every = 0;
  config.evaluate_every = 300;
  const pid_t pid = start(config);
  const std::string metrics = config.run_directory + "/metrics.jsonl";
  for (int i = 0; i < 2000 && !(std::filesystem::exists(metrics) && std::filesystem::file_size(metrics) > 0); ++i)
    usleep(5000);
  std::filesystem::create_directory(config.run_directory + "/layers.jsonl");
  CHECK(result_of(pid) == kIo);
  const Json end = lines_of(config, "attempts.jsonl").back();
  CHECK(end.at("event") == "end");
  const int64_t saved = list_checkpoints(config.run_directory).back().step;
  CHECK(saved > 0);
  CHECK(saved < config.max_steps);
}

TEST_CASE("Ranks with a sharded state report the same layers as one process", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig one = with_all_reports(tiny(directory, "one")), two = one;
  two.run_directory = directory.path("two");
  for (PretrainConfig* config : {&one, &two}) {
    config->optimizer.type = OptimizerType::kLamb;
    config->optimizer.ema_decay = 0.9;
  }
  two.distributed.shard_optimizer_state = true;
  REQUIRE(run_in_child(one) == kOk);
  REQUIRE(result_of(start(two, "", /*ranks=*/2)) == kOk);
  const std::vector<Json> expected = lines_of(one, "layers.jsonl"), found = lines_of(two, "layers.jsonl");
  REQUIRE(found.size() == expected.size());
  for (size_t line = 1; line < expected.size(); ++line) {
    for (size_t i = 0; i < expected[line].at("layers").size(); ++i) {
      const Json &want = expected[line].at("layers")[i], &got = found[line].at("layers")[i];
      CHECK(got.at("name") == want.at("name"));
      // The gradient of a key's bias is 0 but for rounding, and ranks round differently: they add in another order.
      if (want.at("name").get<std::string>().ends_with("key.bias")) continue;
      for (const char* key : {"weight_norm", "update_norm"})
        CHECK(got.at(key).get<double>() == Approx(want.at(key).get<double>()).epsilon(1e-3));
    }
  }
  CHECK(lines_of(two, "answers.jsonl").size() == lines_of(one, "answers.jsonl").size());
  CHECK(lines_of(two, "attempts.jsonl").front().at("world_size") == 2);
  CHECK(event_files(two).size() == 1);
}

TEST_CASE("Fine-tuning has the same reports", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = with_all_reports(tiny_task(directory, "run"));
  REQUIRE(finetune(config, false) == kOk);
  CHECK(event_files(config).size() == 1);
  CHECK(lines_of(config, "attempts.jsonl").back().at("reason") == "finished");
  CHECK(steps_of(lines_of(config, "layers.jsonl")) == std::vector<int64_t>{4, 8, 12});
  CHECK_FALSE(std::filesystem::exists(config.run_directory + "/answers.jsonl"));
  CHECK_THAT(read_file(config.run_directory + "/report/mlperf.log"), Contains("\"eval_accuracy\""));
  if (testing::python_of("BERT_TENSORBOARD_PYTHON").empty()) return;
  const Json found = testing::read_with_tensorboard(config.run_directory + "/report/tensorboard");
  CHECK(found.at("scalars").at("eval/accuracy").size() == 3);
  CHECK(found.at("scalars").at("train/loss").size() == 6);
}
