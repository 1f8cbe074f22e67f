// bert checkpoint average: means of weights, against hand sums, and refusals.
#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

namespace bert {
namespace {

using testing::CommandResult;
using testing::Contains;
using testing::load_checkpoint;
using testing::run_command;
using testing::TemporaryDirectory;
using testing::tiny;

CommandResult average(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"checkpoint", "average"});
  return run_command(checkpoint_command, arguments);
}

}  // namespace

TEST_CASE("bert checkpoint average writes the means of the weights, which a run starts from", "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  const PretrainConfig config = tiny(directory, "run");  // checkpoints of the steps 4, 8 and 12
  REQUIRE(pretrain(config, false) == kOk);
  const auto at_step = [&](int64_t step) {
    return load_checkpoint(checkpoint_directory(config.run_directory, step)).model;
  };
  const StateDict a = at_step(4), b = at_step(8), c = at_step(12);
  const std::string all = directory.path("all"), two = directory.path("two");
  const CommandResult result = average({config.run_directory, "--output", all});
  REQUIRE(result.code == kOk);
  CHECK(nlohmann::json::parse(result.out)["checkpoints"].size() == 3);
  REQUIRE(average({config.run_directory, "--last", "2", "--output", two}).code == kOk);
  const StateDict of_all = load_model(all).model, of_two = load_model(two).model;
  CHECK(of_all.size() == a.size());
  for (const auto& item : a) {
    const std::string& name = item.key();
    CAPTURE(name);
    const auto in_double = [&](const StateDict& weights) { return weights[name].to(at::kDouble); };
    CHECK(of_all[name].equal(((in_double(a) + in_double(b) + in_double(c)) / 3).to(at::kFloat)));
    CHECK(of_two[name].equal(((in_double(b) + in_double(c)) / 2).to(at::kFloat)));
  }
  PretrainConfig next = tiny(directory, "next");
  next.initial_checkpoint = all;
  next.max_steps = 1;
  CHECK(pretrain(next, false) == kOk);
}

TEST_CASE("bert checkpoint average refuses one checkpoint, other models and places that hold something",
          "[unit][checkpoint]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "run"), other = tiny(directory, "other");
  config.max_steps = other.max_steps = 2;
  config.checkpoint_every = 1;
  other.model.num_attention_heads = 4;
  REQUIRE(pretrain(config, false) == kOk);
  REQUIRE(pretrain(other, false) == kOk);
  const std::string first = checkpoint_directory(config.run_directory, 1);
  const auto refused = [&](const std::vector<std::string>& arguments, int code, const std::string& why) {
    CAPTURE(arguments);
    const CommandResult result = average(arguments);
    CHECK(result.code == code);
    CHECK_THAT(result.err, Contains(why));
  };
  const std::string output = directory.path("output");
  refused({first, "--output", output}, kUsage, "an average needs two checkpoints or more");
  refused({config.run_directory, "--last", "3", "--output", output}, kUsage, "has 2 checkpoints");
  refused({first, other.run_directory, "--output", output}, kBadData, "another number of heads");
  refused({config.run_directory, "--output", first}, kUsage, "--output");
  std::filesystem::resize_file(first + "/" + kModelFile, 100);
  refused({config.run_directory, "--output", output}, kBadData, first);
  CHECK_FALSE(std::filesystem::exists(output));
}

}  // namespace bert
