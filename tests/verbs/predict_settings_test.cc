// bert predict and bert evaluate read texts with the settings of the run that has made the model.
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "app/finetune/finetuning_run.h"
#include "app/inference/pretrained.h"
#include "app/inference/task_predictor.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using nlohmann::json;

namespace {

/// The paths of a run and of its TorchScript export.
std::vector<std::string> run_and_export(const TemporaryDirectory& directory, const FinetuneConfig& config) {
  const std::string script = directory.path(config.task + ".pt");
  REQUIRE(finetune(config, false) == kOk);
  REQUIRE(run_command(export_command, {"export", "--checkpoint", config.run_directory, "--output", script}).code ==
          kOk);
  return {config.run_directory, script};
}

}  // namespace

TEST_CASE("bert predict cuts texts at the max_seq_length of the run", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  config.data.task.max_seq_length = 8;  // of 24 positions: six tokens of a text
  for (const std::string& checkpoint : run_and_export(directory, config)) {
    CAPTURE(checkpoint);
    const auto result = run_command(predict_command, {"predict", "--checkpoint", checkpoint, "--task",
                                                      "text-classification", "5 6 7 8 9 10", "5 6 7 8 9 10 11 12"});
    REQUIRE(result.code == kOk);
    std::istringstream lines(result.out);
    std::string whole, cut;
    std::getline(lines, whole);
    std::getline(lines, cut);
    CHECK(json::parse(whole)["score"] == json::parse(cut)["score"]);
    const TaskPredictor predictor(load_pretrained(checkpoint), {});  // the one of bert serve
    CHECK(predictor.encode({.text = "5 6 7 8 9 10 11 12", .second = {}}).tokens() == 8);
  }
}

TEST_CASE("Accents that are kept in lower case go from a model to its run and its export",
          "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("text-classification", directory);
  PretrainConfig german = bert::testing::tiny(directory, "unused");
  german.data.tokenizer.strip_accents = false;
  std::vector<std::string> vocabulary = bert::testing::tokens();
  vocabulary[20] = "\u00E4";
  vocabulary[21] = "a";
  config.initial_checkpoint = directory.path("german");
  bert::testing::write_tiny_model(config.initial_checkpoint, german, 5, vocabulary);
  for (const std::string& path : run_and_export(directory, config)) {
    CAPTURE(path);
    CHECK(load_pretrained(path).tokenizer->tokens("\u00C4 a") == std::vector<std::string>{"\u00E4", "a"});
  }
  config.run_directory = directory.path("other");
  config.data.tokenizer.strip_accents = true;
  CHECK_THROWS_WITH(finetune(config, false),
                    bert::testing::Contains("/data/strip_accents: is true") && bert::testing::Contains("has false"));
  german.data.tokenizer = {};
  bert::testing::write_tiny_model(directory.path("usual"), german, 5, vocabulary);
  config.initial_checkpoint = directory.path("usual");
  CHECK(finetune(config, false) == kOk);  // the default, spelled out
}

TEST_CASE("bert predict answers with the windows and the null threshold of the run", "[unit][predict][finetune]") {
  const TemporaryDirectory directory;
  FinetuneConfig config = bert::testing::tiny_task_of("squad-v2", directory);
  config.data.task.max_seq_length = 12;  // several windows
  config.data.task.search_null_threshold = false;
  for (const double threshold : {-1e6, 1e6}) {
    CAPTURE(threshold);
    config.data.task.null_score_diff_threshold = threshold;
    config.run_directory = directory.path(threshold < 0 ? "none" : "all");
    for (const std::string& checkpoint : run_and_export(directory, config)) {
      CAPTURE(checkpoint);
      const auto result =
          run_command(predict_command, {"predict", "--checkpoint", checkpoint, "--task", "question-answering",
                                        "--question", "20 21", "5 6 7 8 9 10 11 12 13 14 15 16"});
      REQUIRE(result.code == kOk);
      const json answer = json::parse(result.out)["answer"];
      CHECK((answer == "") == (threshold < 0));
      CHECK(answer == json::parse(read_file(config.run_directory + "/predictions.json"))["a"]);
    }
  }
}
