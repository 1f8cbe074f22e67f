// Configurations of fine-tuning: the recipes in configs/, and the choice between the two kinds.
#include "app/config/finetune_config.h"

#include <fstream>

#include "app/config/pretrain_config.h"
#include "app/system/errors.h"
#include "data/tasks/task_definition.h"
#include "tests/places.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::TemporaryDirectory;

TEST_CASE("A configuration of fine-tuning is refused by name where one of pre-training is wanted", "[unit]") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("sst2.json")) << R"({"task": "sst2", "num_train_epochs": 3})";
  CHECK_THROWS_WITH(load_pretrain_config(directory.path("sst2.json"), {}),
                    Contains("sst2.json: names a task, as a configuration of bert finetune does"));
}

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
    return testing::message_of<ConfigError>([&] { load_finetune_config(directory.path("c.json")); });
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
