// Fine-tuning with a tiny model and a tiny table: what a run learns, writes and refuses, and stops at any point.
#include <torch/types.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/finetune/finetuning_run.h"
#include "app/finetune/seed_series.h"
#include "app/inference/pretrained.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::checkpoint_file;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::kLength;
using bert::testing::load_checkpoint;
using bert::testing::metrics_of;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_kinds;
using bert::testing::tiny_task;
using bert::testing::tiny_task_of;

namespace {

nlohmann::json summary_of(const FinetuneConfig& config) {
  return nlohmann::json::parse(read_file(config.run_directory + "/summary.json"));
}

}  // namespace

TEST_CASE("A tiny model learns a tiny table, and writes metrics, predictions and labels", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = 150;
  config.evaluate_every = 75;
  config.checkpoint_every = 0;
  REQUIRE(finetune(config, false) == kOk);
  // Two thirds of the labels are "small": a constant answer has an accuracy of about 0.67.
  CHECK(summary_of(config)["accuracy"].get<double>() > 0.9);
  CHECK(summary_of(config)["steps"] == 150);
  const Pretrained trained = load_pretrained(config.run_directory);
  CHECK(trained.model.task == "text-classification");
  CHECK(trained.model.labels == std::vector<std::string>{"large", "small"});
  CHECK(trained.weights["classifier.weight"].sizes() == c10::IntArrayRef({2, 32}));
  const auto model = nlohmann::json::parse(read_file(config.run_directory + "/latest/config.json"));
  CHECK(model["architectures"] == nlohmann::json({"BertForSequenceClassification"}));
  CHECK(model["id2label"] == nlohmann::json({{"0", "large"}, {"1", "small"}}));

  int64_t evaluations = 0;
  for (const auto& object : metrics_of(config.run_directory)) {
    for (const char* key : {"loss", "learning_rate", "grad_norm", "tokens_per_second", "mfu"})
      CHECK(object.contains(key) != object.contains("evaluation"));
    if (object.contains("evaluation")) ++evaluations;
  }
  CHECK(evaluations == 2);
  CHECK(finetune(config, false) == kOk);  // a finished run does nothing
}

TEST_CASE("A fine-tuning that is killed at any point ends in the same bytes", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig whole = tiny_task(directory, "whole"), killed = tiny_task(directory, "killed");
  REQUIRE(run_in_child(whole) == kOk);
  for (const char* point : {"train.step:6", "checkpoint.renamed:1", "train.step:3"}) {
    CAPTURE(point);
    CHECK(run_in_child(killed, point) == 1000 + SIGKILL);
  }
  std::filesystem::remove_all(directory.path("model"));  // a resumption needs its own checkpoint alone
  REQUIRE(run_in_child(killed) == kOk);
  for (const char* file : {kModelFile, kOptimizerFile})
    CHECK(checkpoint_file(whole, 12, file) == checkpoint_file(killed, 12, file));
}

TEST_CASE("Every kind of task resumes to the same bytes after a kill, in every precision", "[unit][finetune]") {
  const TemporaryDirectory directory;
  for (const FinetuneConfig& whole : tiny_kinds(directory)) {
    CAPTURE(whole.run_directory);
    FinetuneConfig killed = whole;
    killed.run_directory += "-killed";
    REQUIRE(finetune(whole, false) == kOk);
    CHECK(run_in_child(killed, "train.step:4") == 1000 + SIGKILL);  // after the checkpoint of step 2
    REQUIRE(finetune(killed, false) == kOk);
    for (const char* file : {kModelFile, kOptimizerFile})
      CHECK(checkpoint_file(whole, 6, file) == checkpoint_file(killed, 6, file));
    nlohmann::json one = summary_of(whole), other = summary_of(killed);
    for (nlohmann::json* summary : {&one, &other})
      for (const char* key : {"config_sha256", "sequences_per_second"}) summary->erase(key);
    CHECK(one == other);
  }
}

TEST_CASE("The length of a run is that of its epochs, if max_steps is 0", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = 0;
  config.num_train_epochs = 0.5;  // of 200 rows: 100 of 8 a step
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_of(config)["steps"] == 13);
}

TEST_CASE("Frozen layers keep their weights, and the others change", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.frozen_layers = 1;
  REQUIRE(finetune(config, false) == kOk);
  const Checkpoint before = load_checkpoint(config.initial_checkpoint),
                   after = load_checkpoint(config.run_directory + "/latest");
  for (const auto& item : after.model) {
    CAPTURE(item.key());
    const bool frozen = item.key().starts_with("bert.embeddings.") || item.key().starts_with("bert.encoder.layer.0.");
    if (before.model.contains(item.key())) CHECK(torch::equal(item.value(), before.model[item.key()]) == frozen);
  }
}

TEST_CASE("layer_lr_decay scales the first update of each layer", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = 1;
  config.optimizer.lr = 1e-3;
  config.optimizer.weight_decay = 0;
  config.optimizer.layer_lr_decay = 0.5;
  config.schedule.type = ScheduleType::kConstant;
  config.schedule.warmup_proportion = 0;
  REQUIRE(finetune(config, false) == kOk);
  const Checkpoint before = load_checkpoint(config.initial_checkpoint),
                   after = load_checkpoint(config.run_directory + "/latest");
  // The first update of AdamW is the rate for every weight with a gradient: m / sqrt(v) is 1 (Kingma and Ba 2015).
  const auto update = [&](const std::string& name) {
    return (after.model[name] - before.model[name]).abs().max().item<double>();
  };
  const std::string layers = "bert.encoder.layer.", weight = ".attention.output.dense.weight";
  constexpr double kShare = 0.05;  // what eps takes of the rate for small gradients; the rates differ by 2
  CHECK(update("bert.pooler.dense.weight") == Approx(1e-3).epsilon(kShare));
  CHECK(update(layers + "1" + weight) == Approx(0.5e-3).epsilon(kShare));
  CHECK(update(layers + "0" + weight) == Approx(0.25e-3).epsilon(kShare));
  CHECK(update("bert.embeddings.token_type_embeddings.weight") == Approx(0.125e-3).epsilon(kShare));
}

TEST_CASE("The loss of an evaluation is a number if a batch has only classes of weight 0", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = 1;
  config.class_weights = ClassWeights::kBalanced;
  config.data.task.labels = {"large", "none", "small"};  // no training example is "none"
  config.data.dev_file = directory.path("none.csv");
  std::ofstream table(config.data.dev_file);
  table << "sentence,kind\n";
  for (int i = 0; i < 40; ++i) table << "5 6 7," << (i < 32 ? "none" : "small") << "\n";  // a batch has 32
  table.close();
  REQUIRE(finetune(config, false) == kOk);
  int64_t losses = 0;
  for (const auto& object : metrics_of(config.run_directory)) {
    if (object.contains("evaluation")) losses += object["evaluation"].contains("loss") ? 1 : 0;
  }
  CHECK(losses == 1);
}

TEST_CASE("The process ends with 78 if the model has too few positions", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.data.task.max_seq_length = kLength + 1;
  CHECK(run_in_child(config) == kBadConfiguration);
}

TEST_CASE("A run ends when evaluations get no better, and keeps the best checkpoint", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.max_steps = 200;
  config.optimizer.lr = 0;  // every evaluation has one value
  config.evaluate_every = 2;
  config.early_stopping_patience = 3;
  config.keep_best = true;
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_of(config)["steps"] == 8);
  CHECK(summary_of(config)["best_step"] == 2);
  CHECK(summary_of(config)["best_accuracy"] == summary_of(config)["accuracy"]);
  CHECK(load_model(config.run_directory + "/best").state.step == 2);
  REQUIRE(finetune(config, false) == kOk);  // a run that ended early stays ended
  CHECK(summary_of(config)["steps"] == 8);
}

TEST_CASE("With keep_best, metrics and files are those of the best weights, of dev and test", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig plain = tiny_task(directory, ""), kept;
  plain.evaluate_every = 4;
  plain.data.test_file = directory.path("dev.csv");
  plain.optimizer.lr = 0.1;  // the accuracy jumps between evaluations
  const double last = [&] {
    for (plain.seed = 17; plain.seed < 100; ++plain.seed) {  // 17 is one, where this test was written
      plain.run_directory = directory.path("plain-" + std::to_string(plain.seed));
      kept = plain;
      kept.keep_best = true;
      kept.run_directory = directory.path("kept-" + std::to_string(plain.seed));
      REQUIRE(finetune(plain, false) == kOk);
      REQUIRE(finetune(kept, false) == kOk);
      const double accuracy = summary_of(plain)["accuracy"];
      if (summary_of(kept)["best_accuracy"] > accuracy) return accuracy;
    }
    return 1.0;
  }();
  const nlohmann::json summary = summary_of(kept);
  REQUIRE(summary["best_step"] < 12);
  CHECK(summary["accuracy"] == summary["best_accuracy"]);
  CHECK(summary["test_accuracy"] == summary["best_accuracy"]);
  CHECK(summary["accuracy"] > last);

  // The files are those of a run that ends at the best step; the last checkpoint is that of a run without keep_best.
  FinetuneConfig best = kept;
  best.run_directory = directory.path("to-best");
  best.stop_at_step = summary["best_step"];
  REQUIRE(finetune(best, false) == kOk);
  for (const char* file : {"dev_predictions.tsv", "test_predictions.tsv"}) {
    CAPTURE(file);
    CHECK(read_file(kept.run_directory + "/" + file) == read_file(best.run_directory + "/" + file));
  }
  for (const char* file : {kModelFile, kOptimizerFile})
    CHECK(checkpoint_file(kept, 12, file) == checkpoint_file(plain, 12, file));
}

TEST_CASE("MNLI runs with the mismatched set alone, and predicts the diagnostic set beside it", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.task = "mnli";
  config.data.directory = directory.path("MNLI");
  config.evaluate_every = 6;
  config.keep_best = true;
  std::string rows = "index\tsentence1\tsentence2\tgold_label\n";
  for (int i = 0; i < 9; ++i)
    rows += std::to_string(i) + "\t5 6\t7 8\t" +
            (i % 3 == 0   ? "neutral"
             : i % 3 == 1 ? "entailment"
                          : "contradiction") +
            "\n";
  std::filesystem::create_directory(directory.path("MNLI"));
  std::filesystem::create_directory(directory.path("AX"));
  for (const char* name : {"train.tsv", "dev_mismatched.tsv"}) std::ofstream(directory.path("MNLI/") + name) << rows;
  std::ofstream(directory.path("AX/AX.tsv")) << "index\tsentence1\tsentence2\n0\t5\t6\n";
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_of(config)["best_accuracy"] == summary_of(config)["accuracy_mismatched"]);
  CHECK_THAT(read_file(config.run_directory + "/AX.tsv"), Contains("index\tprediction\n0\t"));
}

TEST_CASE("Every kind of task trains, and has its metrics and its files", "[unit][finetune]") {
  const TemporaryDirectory directory;
  struct Case {
    const char* task;
    std::vector<std::string> metrics, files;
  };
  const std::vector<Case> cases = {{"squad-v1", {"exact_match", "f1"}, {"predictions.json", "nbest_predictions.json"}},
                                   {"squad-v2", {"exact_match", "f1"}, {"predictions.json", "null_odds.json"}},
                                   {"ner", {"f1", "precision", "recall"}, {"dev_predictions.txt"}},
                                   {"swag", {"accuracy"}, {"dev_predictions.tsv"}},
                                   {"text-regression", {"pearson", "spearman"}, {"dev_predictions.tsv"}}};
  for (const Case& each : cases) {
    CAPTURE(each.task);
    const FinetuneConfig config = tiny_task_of(each.task, directory);
    REQUIRE(finetune(config, false) == kOk);
    for (const std::string& metric : each.metrics) CHECK(summary_of(config).contains(metric));
    for (const std::string& file : each.files) CHECK_FALSE(read_file(config.run_directory + "/" + file).empty());
  }
}

TEST_CASE("A fine-tuning run with micro_batch_size auto says its size in run.log, counts choices, and keeps it",
          "[unit][finetune]") {
  const TemporaryDirectory directory;
  for (const char* task : {"text-classification", "swag"}) {
    CAPTURE(task);
    FinetuneConfig number = tiny_task_of(task, directory), by_memory = number;
    by_memory.micro_batch_size = RunConfig::kFromMemory;
    by_memory.run_directory += "-auto";
    for (FinetuneConfig* config : {&number, &by_memory}) REQUIRE(finetune(*config, false) == kOk);
    CHECK_THAT(read_file(by_memory.run_directory + "/run.log"),
               Contains("reading and tokenizing the files of task ") &&
                   Contains("micro_batch_size auto: 4, the largest that fits; the plan is "));
    CHECK(checkpoint_file(by_memory, 4, "model.safetensors") == checkpoint_file(number, 4, "model.safetensors"));
    number.micro_batch_size = 2;
    number.run_directory += "-two";
    number.stop_at_step = 2;
    REQUIRE(finetune(number, false) == kOk);
    number.micro_batch_size = RunConfig::kFromMemory;
    number.stop_at_step = 0;
    REQUIRE(finetune(number, false) == kOk);
    CHECK_THAT(read_file(number.run_directory + "/run.log"),
               Contains("micro_batch_size auto: 2, as before (the largest that fits is 4); the plan is "));
  }
}

TEST_CASE("The largest example of SWAG has four sequences", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const auto longest = [&](const std::string& task) {
    const FinetuningInputs inputs = read_finetuning_inputs(tiny_task_of(task, directory), {});
    size_t tokens = 0;
    for (const TaskSequence& sequence : inputs.train->sequences) tokens = std::max(tokens, sequence.input_ids.size());
    return std::pair(longest_unit(inputs), static_cast<int64_t>(tokens));
  };
  const auto [swag, of_ending] = longest("swag");
  CHECK(of_ending == 6);  // [CLS] 5 [SEP] 6 7 [SEP]: sent1, and sent2 with an ending
  CHECK(swag == 4 * of_ending);
  const auto [table, of_row] = longest("text-classification");
  CHECK(table == of_row);
}

TEST_CASE("Several seeds make several runs, with mean and spread, and go on after a stop", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = tiny_task(directory, "series");
  REQUIRE(finetune_seeds(config, 2, false) == kOk);
  const auto summary = [&] { return nlohmann::json::parse(read_file(config.run_directory + "/summary.json")); };
  const auto accuracy = [&](int64_t seed) {
    const std::string run = config.run_directory + "/seed-" + std::to_string(seed);
    return nlohmann::json::parse(read_file(run + "/summary.json"))["accuracy"].get<double>();
  };
  const double first = accuracy(config.seed), second = accuracy(config.seed + 1);
  CHECK(summary()["seeds"] == nlohmann::json({config.seed, config.seed + 1}));
  CHECK(summary()["accuracy"]["values"] == nlohmann::json({first, second}));
  CHECK(summary()["accuracy"]["mean"] == Approx((first + second) / 2));
  CHECK(summary()["accuracy"]["std"] == Approx(std::abs(first - second) / std::sqrt(2.0)).margin(1e-12));

  // Each run is that of its seed alone, and finished runs stay as they are.
  FinetuneConfig alone = config;
  alone.seed = config.seed + 1;
  alone.run_directory = directory.path("alone");
  REQUIRE(finetune(alone, false) == kOk);
  FinetuneConfig second_run = alone;
  second_run.run_directory = config.run_directory + "/seed-" + std::to_string(alone.seed);
  CHECK(checkpoint_file(alone, 12, "model.safetensors") == checkpoint_file(second_run, 12, "model.safetensors"));
  const auto before = std::filesystem::last_write_time(second_run.run_directory + "/metrics.jsonl");
  REQUIRE(finetune_seeds(config, 3, false) == kOk);
  CHECK(std::filesystem::last_write_time(second_run.run_directory + "/metrics.jsonl") == before);
  CHECK(summary()["accuracy"]["values"].size() == 3);

  FinetuneConfig other = config;
  other.run_directory = alone.run_directory;
  CHECK_THROWS_WITH(finetune_seeds(other, 2, false), Contains("run_directory: ") && Contains("holds a run"));
}

TEST_CASE("The figures of several seeds are those of statistics", "[unit][finetune]") {
  const std::vector<SeedResult> results = {{1, {{"accuracy", 0.5}, {"accuracy_mismatched", 0.25}, {"loss", 3}}},
                                           {2, {{"accuracy", 0.75}, {"accuracy_mismatched", 0.25}, {"loss", 4}}},
                                           {4, {{"accuracy", 1}, {"accuracy_mismatched", 0.25}, {"f1", 1}}}};
  const auto series = nlohmann::json::parse(series_json(results, {"accuracy", "f1"}));
  CHECK(series == nlohmann::json::parse(R"({"seeds": [1, 2, 4],
    "accuracy": {"values": [0.5, 0.75, 1.0], "mean": 0.75, "std": 0.25},
    "accuracy_mismatched": {"values": [0.25, 0.25, 0.25], "mean": 0.25, "std": 0.0}})"));
  CHECK(series_table(results, {"accuracy"}) ==
        "seed              accuracy  accuracy_mismatched\n"
        "1                   0.5000               0.2500\n"
        "2                   0.7500               0.2500\n"
        "4                   1.0000               0.2500\n"
        "mean                0.7500               0.2500\n"
        "std                 0.2500               0.0000");
  CHECK(nlohmann::json::parse(series_json({results[0]}, {"accuracy"}))["accuracy"]["std"].is_null());
  CHECK(series_table({{1, {{"best_f1", 1}, {"f1", 0.5}, {"best_step", 4}, {"test_f1", 0.25}}}}, {"f1"}) ==
        "seed                    f1       best_f1       test_f1\n"
        "1                   0.5000        1.0000        0.2500\n"
        "mean                0.5000        1.0000        0.2500\n"
        "std                      -             -             -");
}

TEST_CASE("Balanced weights of classes are those of scikit-learn", "[unit][finetune]") {
  // compute_class_weight("balanced", [0, 1, 2], [0, 0, 0, 0, 0, 1, 2, 2]): 8 / (3 * count)
  TaskFeatures features;
  features.num_outputs = 3;
  for (const int32_t label : {0, 0, 0, 0, 0, 1, 2, 2}) features.sequences.emplace_back().label = label;
  const std::vector<float> weights = balanced_class_weights(features);
  CHECK(weights[0] == Approx(0.53333333));
  CHECK(weights[1] == Approx(2.66666667));
  CHECK(weights[2] == Approx(1.33333333));
}

TEST_CASE("A configuration that does not fit the model or the table is refused with its field", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig good = tiny_task(directory, "run");
  FinetuneConfig config = good;
  config.data.task.max_seq_length = 25;
  CHECK_THAT(finetuning_refusal<ConfigError>(config),
             Contains("data.max_seq_length: is 25") && Contains("has 24 positions"));
  config = good;
  config.model.hidden_size = 64;
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("/model/hidden_size: is 64") && Contains("has 32"));
  config = good;
  config.frozen_layers = 3;
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("frozen_layers: is 3") && Contains("has 2 layers"));
  for (const bool checkpointing : {true, false}) {
    config = good;
    config.frozen_layers = 0;
    config.gradient_checkpointing = checkpointing;
    config.distributed.shard_optimizer_state = !checkpointing;
    CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("frozen_layers: ") && Contains("set it to false"));
  }
  config = good;
  config.data.task.label_column = "colour";
  CHECK_THAT(finetuning_refusal<DataError>(config), Contains("train.csv") && Contains("colour"));
  config = good;
  config.data.directory = directory.path("nowhere");
  CHECK_THAT(finetuning_refusal<InputMissing>(config), Contains("data.directory") && Contains("train.csv"));
  config = good;
  config.initial_checkpoint = directory.path("nowhere");
  CHECK_THAT(finetuning_refusal<InputMissing>(config), Contains("initial_checkpoint: ") && Contains("nowhere"));
  config = good;
  config.task = "text-regression";
  config.class_weights = ClassWeights::kBalanced;
  config.data.task.label_column = "sentence";
  CHECK_FALSE(finetuning_refusal<DataError>(config).empty());  // texts are no numbers
}

TEST_CASE("A dropout or size that is given counts, also at its default", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.model = {};
  PretrainConfig made = bert::testing::tiny(directory, "unused");
  made.model.hidden_dropout_prob = made.model.attention_probs_dropout_prob = 0.25;
  Checkpoint checkpoint = load_checkpoint(config.initial_checkpoint);
  checkpoint.state.config = to_json(made);
  config.initial_checkpoint = directory.path("dropout");
  write_checkpoint(config.initial_checkpoint, checkpoint);
  config.max_steps = 1;
  config.given = {"/model/hidden_dropout_prob"};
  REQUIRE(finetune(config, false) == kOk);
  const auto model = nlohmann::json::parse(read_file(config.run_directory + "/config.json"))["model"];
  CHECK(model["hidden_dropout_prob"] == 0.1);  // BERT's default
  CHECK(model["attention_probs_dropout_prob"] == 0.25);
  config.given = {"/model/hidden_size"};
  config.run_directory = directory.path("other");
  CHECK_THAT(finetuning_refusal<ConfigError>(config), Contains("/model/hidden_size: is 768") && Contains("has 32"));
}

TEST_CASE("A resumption with another rate, task or table is refused", "[unit][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = tiny_task(directory, "run");
  config.stop_at_step = 4;
  REQUIRE(finetune(config, false) == kOk);
  config.stop_at_step = 8;
  FinetuneConfig other = config;
  other.optimizer.lr = 1e-3;
  CHECK_THAT(finetuning_refusal<ConfigError>(other), Contains("/optimizer/lr: was 0.002, now 0.001"));
  other = config;
  other.data.train_file = directory.path("dev.csv");
  CHECK_THAT(finetuning_refusal<ConfigError>(other), Contains("the content of data.train: was 200 examples"));
  REQUIRE(finetune(config, false) == kOk);
  CHECK(summary_of(config)["steps"] == 8);
}
