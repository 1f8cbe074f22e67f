// Configurations of fine-tuning: the recipes in configs/, and the choice between the two kinds.
#include "app/config/finetune_config.h"

#include <fstream>

#include "app/system/errors.h"
#include "data/tasks/task_definition.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::TemporaryDirectory;

TEST_CASE("Every task has a recipe, and every recipe its task", "[unit][config]") {
  for (const std::string& task : task_names()) {
    CAPTURE(task);
    const std::string path = std::string(BERT_SOURCE_DIR) + "/configs/" + task + ".json";
    REQUIRE(names_task(path, {}));
    CHECK(load_finetune_config(path).task == task);
  }
  CHECK_FALSE(names_task(std::string(BERT_SOURCE_DIR) + "/configs/quickstart.json", {}));
  CHECK(names_task(std::string(BERT_SOURCE_DIR) + "/configs/quickstart.json", {"task=sst2"}));
}

TEST_CASE("A configuration of fine-tuning that lacks its parts is refused with all of them", "[unit][config]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("c.json")) << R"({"task": "sst3", "early_stopping_patience": 2})";
  std::string message;
  try {
    load_finetune_config(directory.path("c.json"));
  } catch (const ConfigError& error) {
    message = error.what();
  }
  for (const char* part : {"did you mean \"sst2\"?", "/run_directory: required", "/initial_checkpoint: required",
                           "/data/directory: required", "/early_stopping_patience: want evaluate_every above 0"}) {
    CHECK_THAT(message, Contains(part));
  }
}

TEST_CASE("A configuration of fine-tuning knows its given fields, also those at their defaults", "[unit][config]") {
  const std::string path = std::string(BERT_SOURCE_DIR) + "/configs/sst2.json";
  REQUIRE(FinetuneConfig().model.hidden_dropout_prob == 0.1);
  CHECK_FALSE(load_finetune_config(path).given.contains("/model/hidden_dropout_prob"));
  const FinetuneConfig config = load_finetune_config(path, {"model.hidden_dropout_prob=0.1"});
  CHECK(config.given.contains("/model/hidden_dropout_prob"));
  CHECK(config.given.contains("/optimizer/lr"));  // by the file
  CHECK_FALSE(config.given.contains("/model/attention_probs_dropout_prob"));
  CHECK(compare(config, load_finetune_config(path)).empty());
}

TEST_CASE("A distillation without effect is refused with its field", "[unit][config]") {
  const TemporaryDirectory directory;
  const auto message_with = [&](const std::string& distillation) -> std::string {
    std::ofstream(directory.path("c.json"))
        << R"({"task": "sst2", "run_directory": "r", "initial_checkpoint": "m", "data": {"directory": "d"},)"
        << R"( "micro_batch_size": "auto", "distillation": {)" << distillation << "}}";
    try {
      load_finetune_config(directory.path("c.json"));
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(message_with("").empty());
  CHECK_THAT(message_with(R"("logits_weight": 2, "attention_weight": 4)"),
             Contains("/distillation/logits_weight: want distillation.teacher, or 1 here, got 2") &&
                 Contains("/distillation/attention_weight: want distillation.teacher"));
  CHECK_THAT(message_with(R"("teacher": "t")"), Contains("/micro_batch_size: want a number with distillation.teacher"));
  CHECK_THAT(message_with(R"("teacher": "t", "labels_weight": 0, "logits_weight": 0)"),
             Contains("no other loss trains the head"));
  CHECK_THAT(message_with(R"("teacher": "t", "logits_weight": 0, "temperature": 2)"),
             Contains("/distillation/temperature: want logits_weight above 0"));
  CHECK_THAT(message_with(R"("teacher": "t", "temperature": 0)"), Contains("/distillation/temperature"));
}

TEST_CASE("A configuration of fine-tuning survives its JSON, and knows the fields that may change", "[unit][config]") {
  FinetuneConfig config;
  config.task = "mrpc";
  config.num_train_epochs = 2.5;
  config.model.hidden_size = 96;
  const FinetuneConfig read = parse_finetune_config(to_json(config), "test");
  CHECK(compare(config, read).empty());
  CHECK(config_sha256(config) == config_sha256(read));
  FinetuneConfig resumed = read;
  resumed.keep_best = true;  // may change
  resumed.num_train_epochs = 3;
  const std::vector<ConfigDifference> differences = compare_for_resume(read, resumed);
  REQUIRE(differences.size() == 1);
  CHECK(differences.front().pointer == "/num_train_epochs");
  ModelDescription model{.task = "mrpc"};
  read_trained_model(to_json(config), model, "test");
  CHECK(model.config.hidden_size == 96);
}

TEST_CASE("A sweep has a run for each combination of its values", "[unit][config]") {
  const std::string path = std::string(BERT_SOURCE_DIR) + "/configs/sst2.json";
  const std::string grid = R"(sweep={"optimizer.lr": [2e-5, 3e-5], "num_train_epochs": [2, 3]})";
  const FinetuneSweep sweep = load_finetune_sweep(path, {grid, "run_directory=/runs"});
  CHECK(sweep.keys == std::vector<std::string>{"optimizer.lr", "num_train_epochs"});
  CHECK(sweep.run_directory == "/runs");
  std::vector<std::string> directories;
  for (const SweepRun& run : sweep.runs) directories.push_back(run.config.run_directory);
  CHECK(directories == std::vector<std::string>{"/runs/optimizer.lr=2e-05,num_train_epochs=2",
                                                "/runs/optimizer.lr=2e-05,num_train_epochs=3",
                                                "/runs/optimizer.lr=3e-05,num_train_epochs=2",
                                                "/runs/optimizer.lr=3e-05,num_train_epochs=3"});
  CHECK(sweep.runs[1].config.num_train_epochs == 3);
  CHECK(sweep.runs[2].config.optimizer.lr == 3e-5);
  CHECK(sweep.runs[2].config.given.contains("/num_train_epochs"));
  const FinetuneConfig plain = load_finetune_config(path, {grid, "run_directory=/runs"});
  CHECK(compare(plain, load_finetune_config(path, {"run_directory=/runs"})).empty());
  CHECK_THAT(finetune_config_schema(), Contains("\"sweep\""));
  // Values are of any kind that the field takes.
  const FinetuneSweep kinds = load_finetune_sweep(
      path, {R"(sweep={"data.labels": [["a", "b"], []], "keep_best": [false], "data": {"train_file": ["a/b.tsv"]}})"});
  CHECK(kinds.runs.front().name == "data.labels=a+b,keep_best=false,data.train_file=a_b.tsv");
  CHECK(kinds.runs.front().config.data.task.labels == std::vector<std::string>{"a", "b"});
  // A required key may have its value from the sweep alone.
  const std::string ends = R"(sweep={"initial_checkpoint": ["a", "b"], "evaluate_every": [100, 200]})";
  CHECK(load_finetune_sweep(path, {"initial_checkpoint=", "early_stopping_patience=3", ends}).runs.size() == 4);
  CHECK(load_finetune_config(path, {"initial_checkpoint=", "early_stopping_patience=3", ends})
            .initial_checkpoint.empty());
  CHECK(load_finetune_sweep(path).keys.empty());
  CHECK(load_finetune_sweep(path).runs.size() == 1);
}

TEST_CASE("A sweep is refused with the place of the key or value that does not fit", "[unit][config]") {
  const TemporaryDirectory directory;
  const auto refusal = [&](const std::string& sweep) {
    const std::string path = directory.path("c.json");
    std::ofstream(path) << R"({"task": "sst2", "run_directory": "r", "initial_checkpoint": "m",
"data": {"directory": "d"},
"sweep": )" << sweep << "}";
    try {
      load_finetune_config(path);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(R"({"optimizer.lr": [1e-5]})").empty());
  CHECK_THAT(refusal(R"({"optimizer.rate": [1e-5]})"),
             Contains("c.json:3:11: /optimizer/rate: unknown key") && Contains("known here: "));
  CHECK_THAT(refusal(R"({"optimizr.lr": [1e-5]})"), Contains("did you mean \"optimizer\"?"));
  CHECK_THAT(refusal(R"({"optimizer.lr": [1e-5, "high"]})"),
             Contains("c.json:3:34: /optimizer/lr: want a number in [0, 10]"));
  CHECK_THAT(refusal(R"({"optimizer.lr": 1e-5})"), Contains("/sweep/optimizer.lr: want a list of values"));
  CHECK_THAT(refusal(R"({"optimizer.lr": []})"), Contains("want a list of values"));
  CHECK_THAT(refusal(R"({"optimizer.lr": [1e-5, 1e-5]})"), Contains("/sweep: want values that differ"));
  CHECK_THAT(refusal(R"({"run_directory": ["a", "b"]})"), Contains("is the same for all runs"));
  CHECK_THAT(refusal(R"([1])"), Contains("/sweep: want an object"));
  CHECK_THAT(refusal(R"({"seed": [0, 1], "optimizer": {"lr": [1e-5]}, "optimizer.lr": [1e-5]})"),
             Contains("is there twice"));
  CHECK_THAT(refusal(R"({"keep_best": [true, false]})"), Contains("want evaluate_every above 0"));
}
