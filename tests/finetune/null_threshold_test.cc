// The null threshold of SQuAD 2.0: found on the development set, used everywhere else.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/finetune/finetuning_run.h"
#include "app/inference/pretrained.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

json json_of(const std::string& path) { return json::parse(read_file(path)); }

/// A run on questions that all have answers. Its test file has the same questions without answers.
FinetuneConfig run_with_test_file(const TemporaryDirectory& directory) {
  FinetuneConfig config = bert::testing::tiny_task_of("squad-v2", directory);
  config.max_steps = 60;  // the questions of the training file are learnt
  config.checkpoint_every = 0;
  config.data.test_file = directory.path("test.json");
  json questions = json_of(config.data.dev_file);
  for (json& question : questions["data"][0]["paragraphs"][0]["qas"])
    question.update({{"answers", json::array()}, {"is_impossible", true}});
  std::ofstream(config.data.test_file) << questions.dump();
  return config;
}

}  // namespace

TEST_CASE("The null threshold of the development set decides about the test file", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig config = run_with_test_file(directory);
  REQUIRE(finetune(config, false) == kOk);
  const json summary = json_of(config.run_directory + "/summary.json");
  REQUIRE(summary["f1"] == 100);
  // The threshold is the highest null score of a question with an answer: evaluate-v2.0.py (find_best_thresh).
  const json scores = json_of(config.run_directory + "/null_odds.json");
  const double highest = std::max(scores["a"].get<double>(), scores["b"].get<double>());
  CHECK(summary["null_score_diff_threshold"] == highest);
  // A search on the test file would make every answer empty.
  CHECK(json_of(config.run_directory + "/test_predictions.json") == json({{"a", "7 8"}, {"b", "12"}}));
  // A checkpoint keeps it, so that a data set of any kind is judged by it.
  const std::string hf = directory.path("hf"), own = directory.path("own");
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"convert", "--to", "huggingface", "--input", config.run_directory, "--output", hf},
        std::vector<std::string>{"convert", "--from", "huggingface", "--input", hf, "--output", own}})
    REQUIRE(bert::testing::run_command(convert_command, arguments).code == kOk);
  CHECK(json_of(hf + "/config.json")["null_score_diff_threshold"] == highest);
  for (const std::string& model : {config.run_directory, hf, own}) {
    CAPTURE(model);
    const Pretrained trained = load_pretrained(model);
    REQUIRE(trained.model.task_data);
    CHECK(trained.model.task_data->null_score_diff_threshold == highest);
    CHECK_FALSE(trained.model.task_data->search_null_threshold);
  }
}
