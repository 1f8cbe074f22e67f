// The objectives of pre-training: each is trained, evaluated, resumed, exported and asked for answers.
#include <fcntl.h>
#include <signal.h>
#include <torch/types.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/inference/predictor.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/train/run_inputs.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "model/torchscript.h"
#include "tests/support/command_testing.h"
#include "tests/support/lines.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/support/torchscript_file.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::Contains;
using bert::testing::last_checkpoint;
using bert::testing::load_checkpoint;
using bert::testing::load_torchscript;
using bert::testing::metrics_of;
using bert::testing::mismatch;
using bert::testing::result_of;
using bert::testing::run_in_child;
using bert::testing::said;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;
using bert::testing::write_counting_shard;

namespace {

const std::vector<std::string> kObjectives = {"nsp", "mlm", "sop"};

/// A run whose shards were made for `objective`, with evaluations.
PretrainConfig tiny_of(const TemporaryDirectory& directory, const std::string& objective) {
  PretrainConfig config = tiny(directory, "run of " + objective);
  config.data.train = {directory.path(objective + ".shard")};
  config.data.validation = {directory.path("validation of " + objective + ".shard")};
  write_counting_shard(config.data.train.front(), 300, 1, {{"objective", objective}});
  write_counting_shard(config.data.validation.front(), 40, 2, {{"objective", objective}});
  config.evaluate_every = 6;
  return config;
}

/// The parameters of the sentence-pair head among the names.
std::vector<std::string> pair_parameters(const StateDict& tensors) {
  std::vector<std::string> found;
  for (const auto& item : tensors) {
    for (const char* part : {"pooler", "seq_relationship"}) {
      if (item.key().find(part) != std::string::npos) found.push_back(item.key());
    }
  }
  return found;
}

/// The keys of an object, or of one in it.
std::set<std::string> keys_of(const nlohmann::json& object) {
  std::set<std::string> keys;
  for (const auto& item : object.items()) keys.insert(item.key());
  return keys;
}

}  // namespace

TEST_CASE("Each objective trains, evaluates and says so with its own figures", "[unit][trainer]") {
  const TemporaryDirectory directory;
  for (const std::string& objective : kObjectives) {
    CAPTURE(objective);
    const PretrainConfig config = tiny_of(directory, objective);
    int code = 0;
    const std::string text = said(config, code);
    REQUIRE(code == kOk);
    CHECK_THAT(text, Contains("objective " + objective + "\n"));
    const bool pairs = objective != "mlm";
    const std::string loss = objective + "_loss", accuracy = objective + "_accuracy";
    std::vector<double> held_out;
    for (const auto& object : metrics_of(config.run_directory)) {
      std::set<std::string> keys = keys_of(object);
      if (object.contains("evaluation")) {
        const auto& evaluation = object["evaluation"];
        held_out.push_back(evaluation["mlm_loss"]);
        CHECK(evaluation["mlm_perplexity"].get<double>() == Approx(std::exp(held_out.back())));
        keys = keys_of(evaluation);
        CHECK(keys.contains(accuracy));
        if (pairs) CHECK(evaluation[loss].get<double>() == Approx(0.69).margin(0.1));  // ln 2: the labels are random
      } else {
        CHECK(object["loss"].get<double>() ==
              Approx(object["mlm_loss"].get<double>() + (pairs ? object[loss].get<double>() : 0.0)));
      }
      for (const std::string& other : kObjectives) {
        CAPTURE(object.dump(), other);
        CHECK(keys.contains(other + "_loss") == (other == objective || other == "mlm"));
      }
    }
    CHECK(held_out.size() == 3);
    CHECK(held_out.back() < held_out.front());
    const auto summary = nlohmann::json::parse(read_file(config.run_directory + "/summary.json"));
    CHECK(summary.contains(accuracy));
    const Checkpoint checkpoint = load_checkpoint(last_checkpoint(config));
    CHECK(std::string(name_of_value(checkpoint.state.model.objective)) == objective);
    CHECK(pair_parameters(checkpoint.model).size() == (pairs ? 4 : 0));
    CHECK(pair_parameters(checkpoint.optimizer).size() == (pairs ? 8 : 0));
  }
}

TEST_CASE("A run of each objective that is killed ends in the same bytes", "[unit][trainer]") {
  for (const std::string& objective : kObjectives) {
    CAPTURE(objective);
    const TemporaryDirectory directory;
    PretrainConfig whole = tiny_of(directory, objective), killed = whole;
    killed.run_directory += ", killed";
    REQUIRE(run_in_child(whole) == kOk);
    CHECK(run_in_child(killed, "train.step:6") == 1000 + SIGKILL);
    REQUIRE(run_in_child(killed) == kOk);
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
      CHECK(read_file(last_checkpoint(whole) + file) == read_file(last_checkpoint(killed) + file));
    }
  }
}

TEST_CASE("Two ranks train masked tokens alone to the weights of one", "[trainer][distributed]") {
  const TemporaryDirectory directory;
  const PretrainConfig one = tiny_of(directory, "mlm");
  REQUIRE(run_in_child(one) == kOk);
  for (const bool sharded : {false, true}) {
    CAPTURE(sharded);
    PretrainConfig two = one;
    two.run_directory += sharded ? ", two, sharded" : ", two";
    two.distributed.shard_optimizer_state = sharded;
    two.distributed.timeout_seconds = 60;
    REQUIRE(result_of(start(two, "", 2)) == kOk);
    const StateDict want = load_checkpoint(last_checkpoint(one)).model,
                    got = load_checkpoint(last_checkpoint(two)).model;
    REQUIRE(want.size() == got.size());
    for (const auto& item : want) CHECK(mismatch(item.value(), got[item.key()], {2e-5, 1e-4}) == "");
  }
}

TEST_CASE("Each objective is exported, and the exports give the answers of the run", "[unit][trainer][predict]") {
  const TemporaryDirectory directory;
  const std::string text = "6 7 [MASK] 9 10";
  for (const std::string& objective : kObjectives) {
    CAPTURE(objective);
    const bool pairs = objective != "mlm";
    const PretrainConfig config = tiny_of(directory, objective);
    REQUIRE(run_in_child(config) == kOk);
    const std::string script = directory.path(objective + ".pt"), tensors = directory.path(objective + ".safetensors");
    REQUIRE(testing::run_export(config.run_directory, script) == kOk);
    REQUIRE(testing::run_export(config.run_directory, tensors, "safetensors") == kOk);
    CHECK(pair_parameters(read_safetensors(tensors)).size() == (pairs ? 4 : 0));

    std::ifstream in(script, std::ios::binary);
    ExtraFiles inside = {{"config.json", ""}};
    torch::jit::Module loaded = load_torchscript(in, inside);
    const torch::Tensor ids = torch::tensor({{2, 6, 7, 4, 9, 10, 3}});
    const auto outputs = loaded.forward({ids, torch::zeros_like(ids), torch::ones_like(ids)}).toTuple();
    CHECK(outputs->elements().size() == (pairs ? 2 : 1));
    CHECK(nlohmann::json::parse(inside["config.json"])["objective"] == objective);

    const Predictor of_run(config.run_directory), of_export(script);
    const Filler best = of_run.fill_mask(text, 1).masks[0][0], again = of_export.fill_mask(text, 1).masks[0][0];
    CHECK(best.token == again.token);
    CHECK(best.score == Approx(again.score).epsilon(1e-5));
    CHECK(best.score == Approx(outputs->elements()[0].toTensor()[0][3].softmax(-1)[best.token].item<double>()));
    CHECK(of_export.features(text).pooler_output.defined() == pairs);
    for (const std::string& path : {config.run_directory, script}) {
      const auto result =
          testing::run_command(predict_command, {"predict", "--checkpoint", path, "--task", "features", text});
      REQUIRE(result.code == kOk);
      const auto line = nlohmann::json::parse(result.out);
      CHECK(line.contains("pooler_output") == pairs);
      CHECK(line["last_hidden_state"].size() == 7);
    }
  }
}

TEST_CASE("The objective is that of the shards, and another one is refused", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny_of(directory, "sop");
  const std::string sop = config.data.train.front(), nsp = tiny_of(directory, "nsp").data.train.front(),
                    mlm = tiny_of(directory, "mlm").data.train.front();
  const auto tokenizer = load_tokenizer(config);
  const auto open_train = [&](const std::string& objective, const std::vector<std::string>& shards) {
    config.objective = value_named<Objective>(objective);  // of auto: none
    config.data.train = shards;
    return std::string(
        name_of_value(with_objective(config, *open_shards(config, "train", *tokenizer)).objective.value()));
  };
  CHECK(open_train("auto", {sop, sop}) == "sop");
  CHECK(open_train("sop", {sop}) == "sop");
  CHECK(open_train("auto", {mlm}) == "mlm");
  CHECK(open_train("mlm", {sop}) == "mlm");
  CHECK(open_train("mlm", {mlm, nsp, sop}) == "mlm");
  const std::string advice = "expected one objective: make the shards anew with `bert data create --objective ";
  CHECK_THROWS_WITH(open_train("nsp", {sop}),
                    Contains("data.train: " + sop + " was made for objective sop, the configuration says nsp; " +
                             advice + "nsp`, or set objective=mlm"));
  CHECK_THROWS_WITH(open_train("auto", {nsp, mlm}),
                    Contains(mlm + " was made for objective mlm, " + nsp + " for nsp; " + advice));
  CHECK_THROWS_AS(open_train("sop", {mlm}), ConfigError);

  config.model.type_vocab_size = 1;  // enough without pairs
  CHECK(open_train("mlm", {mlm}) == "mlm");
  CHECK_THROWS_WITH(open_train("mlm", {nsp}), Contains("has pairs of segments"));

  PretrainConfig mixed = tiny_of(directory, "nsp");
  mixed.data.validation = {directory.path("validation of sop.shard")};
  CHECK_THROWS_WITH(pretrain(mixed, false), Contains("data.validation: ") && Contains("made for objective sop"));
  mixed.objective = Objective::kMlm;
  int code = 0;
  CHECK_THAT(said(mixed, code), Contains("objective mlm: the labels of the sentence pairs in data.train are not used"));
  CHECK(code == kOk);
  CHECK(pair_parameters(load_checkpoint(last_checkpoint(mixed)).model).empty());
}

TEST_CASE("A run does not go on with another objective", "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig config = tiny_of(directory, "nsp");
  config.stop_at_step = 4;
  REQUIRE(pretrain(config, false) == kOk);
  config.stop_at_step = 8;
  config.objective = Objective::kMlm;
  for (const bool allowed : {false, true}) {
    CHECK_THROWS_AS(pretrain(config, allowed), ConfigError);
    CHECK_THROWS_WITH(pretrain(config, allowed), Contains("objective: was nsp in ") && Contains("now mlm") &&
                                                     Contains("as initial_checkpoint to start from these weights"));
  }
  config.objective = Objective::kNsp;  // the same by its name
  CHECK(pretrain(config, false) == kOk);
}

TEST_CASE("A run may start from the weights of another objective, but not without the head that it needs",
          "[unit][trainer]") {
  const TemporaryDirectory directory;
  PretrainConfig first = tiny_of(directory, "nsp");
  first.optimizer.ema_decay = 0.9;
  REQUIRE(pretrain(first, false) == kOk);
  const StateDict before = load_checkpoint(last_checkpoint(first)).model;
  const auto next = [&](const PretrainConfig& earlier, const std::string& objective, bool moments) {
    PretrainConfig config = tiny_of(directory, objective);
    config.run_directory += moments ? ", with moments" : ", from weights";
    config.initial_checkpoint = earlier.run_directory;
    config.initial_optimizer_state = moments;
    config.optimizer.lr = 1e-9;  // so small that the weights stay comparable
    return config;
  };
  for (const bool moments : {false, true}) {
    CAPTURE(moments);
    PretrainConfig mlm = next(first, "mlm", moments);
    int code = 0;
    CHECK_THAT(said(mlm, code),
               Contains("was trained with objective nsp; this run, with mlm, leaves out bert.pooler.dense.bias, "
                        "bert.pooler.dense.weight, cls.seq_relationship.bias, cls.seq_relationship.weight\n"));
    REQUIRE(code == kOk);
    const StateDict after = load_checkpoint(last_checkpoint(mlm)).model;
    CHECK(after.size() + 4 == before.size());
    for (const auto& item : after) CHECK(mismatch(before[item.key()], item.value(), {1e-6, 0.0}) == "");

    PretrainConfig sop = next(first, "sop", moments);
    CHECK_THAT(said(sop, code), Contains("was trained with objective nsp; its sentence-pair head goes on with sop\n"));
    CHECK(code == kOk);

    PretrainConfig back = next(mlm, "nsp", moments);
    CHECK_THROWS_AS(pretrain(back, false), ConfigError);
    CHECK_THROWS_WITH(pretrain(back, false), Contains("initial_checkpoint: ") &&
                                                 Contains("was trained with objective mlm, so it has no pooler"));
  }
}
