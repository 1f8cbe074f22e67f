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
  CHECK(read_trained_model(to_json(config), "mrpc", "test").model.hidden_size == 96);
}
