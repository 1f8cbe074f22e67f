// Fine-tuning on two ranks computes what one process computes.
#include <torch/types.h>

#include <nlohmann/json.hpp>

#include "app/checkpoint/files.h"
#include "app/finetune/finetuning_run.h"
#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "data/tasks/task_definition.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_distillation.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::load_checkpoint;
using bert::testing::mismatch;
using bert::testing::result_of;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_distillation;
using bert::testing::tiny_kinds;
using bert::testing::tiny_task;

namespace {

/// Compares the weights and the first metric of a run on one process and one on two ranks.
void check_alike(const FinetuneConfig& one, const FinetuneConfig& two) {
  const StateDict of_one = load_checkpoint(one.run_directory + "/latest").model,
                  of_two = load_checkpoint(two.run_directory + "/latest").model;
  for (const auto& item : of_one) {
    CAPTURE(item.key());
    CHECK(mismatch(of_two[item.key()], item.value()).empty());
  }
  const auto metric = [](const FinetuneConfig& config) {
    return nlohmann::json::parse(read_file(config.run_directory + "/summary.json"))
        .at(task_definition(config.task).main_metric());
  };
  CHECK(metric(one) == metric(two));
}

/// Runs `one` on one process and `two` on two ranks, and compares them, with their predictions.
void check_equal_results(const FinetuneConfig& one, const FinetuneConfig& two) {
  REQUIRE(result_of(start(one)) == kOk);
  REQUIRE(result_of(start(two, "", 2)) == kOk);
  check_alike(one, two);
  CHECK(read_file(one.run_directory + "/dev_predictions.tsv") == read_file(two.run_directory + "/dev_predictions.tsv"));
}

}  // namespace

TEST_CASE("Two ranks fine-tune to the weights and the predictions of one process", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  check_equal_results(tiny_task(directory, "one"), tiny_task(directory, "two"));
}

TEST_CASE("Two ranks learn from windows of long texts as one process does", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig one = tiny_task(directory, "one");
  one.data.task.max_seq_length = 8;
  one.data.task.doc_stride = 3;
  one.data.task.long_texts = LongTexts::kWindows;
  one.data.task.window_pooling = WindowPooling::kAttention;
  FinetuneConfig two = one;
  two.run_directory = directory.path("two");
  check_equal_results(one, two);
}

TEST_CASE("Two ranks learn from a teacher as one process does", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig one = tiny_distillation(directory, "one"), two = tiny_distillation(directory, "two");
  check_equal_results(one, two);
}

TEST_CASE("Two ranks fine-tune every kind of task as one process does, in every precision", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  for (const FinetuneConfig& one : tiny_kinds(directory)) {
    CAPTURE(one.run_directory);
    FinetuneConfig two = one;
    two.run_directory += "-two";
    REQUIRE(finetune(one, false) == kOk);
    REQUIRE(result_of(start(two, "", 2)) == kOk);
    check_alike(one, two);
  }
}

TEST_CASE("Two ranks fine-tune several seeds, and meet anew for each run", "[distributed][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig seeds = tiny_task(directory, "seeds"), alone = tiny_task(directory, "alone");
  REQUIRE(result_of(start(alone, "", 2)) == kOk);
  REQUIRE(result_of(start(seeds, "", 2, {}, {"--seeds", "2"})) == kOk);
  const auto json_of = [](const std::string& run) { return nlohmann::json::parse(read_file(run + "/summary.json")); };
  CHECK(json_of(seeds.run_directory)["accuracy"]["values"].size() == 2);
  CHECK(json_of(seeds.run_directory)["accuracy"]["values"][0] == json_of(alone.run_directory)["accuracy"]);
  CHECK(read_file(seeds.run_directory + "/seed-42/latest/model.safetensors") ==
        read_file(alone.run_directory + "/latest/model.safetensors"));
  REQUIRE(result_of(start(seeds, "", 2, {}, {"--seeds", "3"})) == kOk);  // two of them are finished
  CHECK(json_of(seeds.run_directory)["accuracy"]["values"].size() == 3);
}
