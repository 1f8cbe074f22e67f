// Runs that start from the weights of a model directory of transformers.
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/checkpoint.h"
#include "app/interop/hugging_face.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/hf_golden.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/mismatch.h"
#include "tests/support/pretrain_process.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::last_checkpoint;
using bert::testing::load_checkpoint;
using bert::testing::mismatch;
using bert::testing::patch_json;
using bert::testing::result_of;
using bert::testing::start;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny;

namespace {

/// The output of `bert pretrain` on standard error.
std::string notes(const PretrainConfig& config, int ranks = 1) {
  int code = -1;
  const std::string text = testing::said(config, code, ranks);
  CHECK(code == kOk);
  return text;
}

/// A run, and its last checkpoint as transformers would have it: without the files that are this program's alone.
struct EarlierModel {
  TemporaryDirectory directory;
  PretrainConfig config = tiny(directory, "first");
  std::string path = directory.path("model");

  EarlierModel() {
    config.max_steps = config.checkpoint_every = 4;
    REQUIRE(pretrain(config, false) == kOk);
    std::filesystem::copy(last_checkpoint(config), path);
    for (const char* own : {"MANIFEST.json", "state.json", "optimizer.safetensors"})
      REQUIRE(std::filesystem::remove(path + "/" + own));
  }
  /// A run that hardly changes the weights it starts from.
  PretrainConfig next(const std::string& name) const {
    PretrainConfig run = config;
    run.run_directory = directory.path(name);
    run.initial_checkpoint = path;
    run.optimizer.lr = 1e-9;
    return run;
  }
};

}  // namespace

TEST_CASE("A checkpoint of a run is a model directory of transformers, and stays a checkpoint", "[unit][interop]") {
  const TemporaryDirectory directory;
  for (const char* precision : {"fp32", "bf16-weights"}) {
    PretrainConfig config = tiny(directory, precision);
    config.max_steps = config.checkpoint_every = 2;
    config.precision = value_named<Precision>(precision).value();
    REQUIRE(pretrain(config, false) == kOk);
    const std::string checkpoint = last_checkpoint(config);
    const nlohmann::json file = nlohmann::json::parse(read_file(checkpoint + "/config.json"));
    CHECK(file["architectures"] == nlohmann::json::array({"BertForPreTraining"}));
    CHECK(file["hidden_size"] == 32);
    CHECK(file["torch_dtype"] == (std::string(precision) == "fp32" ? "float32" : "bfloat16"));
    CHECK(verify_checkpoint(checkpoint).contains("tokenizer.json"));
    CHECK_FALSE(is_hugging_face(checkpoint));
    CHECK_FALSE(is_hugging_face(config.run_directory));
    std::filesystem::remove(checkpoint + "/" + kManifestFile);
    CHECK(read_hugging_face(checkpoint).report.plain());
    CHECK(read_hugging_face(checkpoint).model.vocabulary == bert::testing::tokens());
  }
}

TEST_CASE("A run starts from a model directory of transformers, and says what it takes", "[unit][interop]") {
  const EarlierModel earlier;
  const StateDict before = load_checkpoint(last_checkpoint(earlier.config)).model;
  PretrainConfig next = earlier.next("next");
  CHECK_THAT(notes(next), Contains("initial_checkpoint: " + earlier.path +
                                   ": 46 tensors loaded, 0 missing, 0 unexpected, 0 reshaped, 0 ignored\n") &&
                              Contains("starting from the weights of " + earlier.path));
  const StateDict after = load_checkpoint(last_checkpoint(next)).model;
  REQUIRE(after.size() == before.size());
  for (const auto& item : after) CHECK(mismatch(before[item.key()], item.value(), {1e-6, 0.0}) == "");

  // Two ranks, and a table with rows of padding.
  next = earlier.next("padded");
  next.model.vocab_size = bert::testing::kVocabulary + 8;
  CHECK_THAT(notes(next, 2), Contains("reshaped: bert.embeddings.word_embeddings.weight: [64, 32], now [72, 32]"));
  const torch::Tensor words = load_checkpoint(last_checkpoint(next)).model["bert.embeddings.word_embeddings.weight"];
  CHECK(mismatch(words.narrow(0, 0, 64), before["bert.embeddings.word_embeddings.weight"], {1e-6, 0.0}) == "");
}

TEST_CASE("A run takes the sizes of its model from initial_checkpoint where nobody gives them", "[unit][interop]") {
  const EarlierModel earlier;
  for (const std::string& from : {earlier.path, earlier.config.run_directory}) {
    CAPTURE(from);
    PretrainConfig next = earlier.next(from == earlier.path ? "foreign" : "own");
    next.initial_checkpoint = from;
    next.model = BertConfig();  // BERT-base, the default
    next.model.hidden_dropout_prob = 0.25;
    REQUIRE(pretrain(next, false) == kOk);
    const Checkpoint last = load_checkpoint(last_checkpoint(next));
    const BertConfig model = parse_pretrain_config(last.state.config, "state.json").model;
    CHECK(model.hidden_size == earlier.config.model.hidden_size);
    CHECK(model.num_hidden_layers == earlier.config.model.num_hidden_layers);
    CHECK(model.vocab_size == earlier.config.model.vocab_size);
    CHECK(model.hidden_dropout_prob == 0.25);
    std::filesystem::rename(from, from + ".gone");  // the run has sizes of its own now
    next.max_steps = next.checkpoint_every = 6;
    CHECK(pretrain(next, true) == kOk);
    std::filesystem::rename(from + ".gone", from);
  }
}

TEST_CASE("An encoder without heads starts a run of any objective, whose heads begin anew", "[unit][interop]") {
  const EarlierModel earlier;
  const std::string file = earlier.path + "/model.safetensors";
  StateDict encoder;
  for (const auto& item : read_safetensors(file)) {
    if (item.key().starts_with("bert.")) encoder.insert(item.key(), item.value());
  }
  save_safetensors(file, encoder);
  PretrainConfig nsp = earlier.next("nsp");
  CHECK_THAT(notes(nsp),
             Contains("39 tensors loaded, 7 missing") &&
                 Contains("is an encoder without cls.predictions; the run initialises cls.predictions.bias, "
                          "cls.predictions.transform.dense.weight"));
  const StateDict after = load_checkpoint(last_checkpoint(nsp)).model;
  CHECK(after.size() == 46);
  for (const auto& item : encoder) CHECK(mismatch(after[item.key()], item.value(), {1e-6, 0.0}) == "");
  const torch::Tensor head = after["cls.predictions.transform.dense.weight"];
  CHECK(head.std().item<double>() > 0.01);  // drawn with initializer_range 0.02
  CHECK(head.std().item<double>() < 0.03);
  PretrainConfig mlm = earlier.next("mlm");
  mlm.objective = Objective::kMlm;
  CHECK_THAT(notes(mlm), Contains(", and leaves out bert.pooler.dense."));
}

TEST_CASE("A model that does not go with the run is refused by the field that differs", "[unit][interop]") {
  const EarlierModel earlier;
  const auto refused = [&](const PretrainConfig& run, const std::string& message) {
    INFO(message);
    CHECK_THROWS_WITH(pretrain(run, false), Contains(message));
  };
  PretrainConfig run = earlier.next("run");
  run.model.hidden_act = Activation::kGelu;
  refused(run, "was trained with model.hidden_act=\"gelu_new\", and this run has \"gelu\"");
  run = earlier.next("run");
  run.model.num_attention_heads = 4;
  refused(run, "was trained with model.num_attention_heads=2, and this run has 4");
  run = earlier.next("run");
  run.model.num_hidden_layers = 3;
  CHECK_THROWS_AS(pretrain(run, false), ConfigError);
  refused(run, "/model/num_hidden_layers: was 2, now 3");
  run = earlier.next("run");
  run.initial_optimizer_state = true;
  refused(run, "initial_optimizer_state: " + earlier.path + " has no moments");
  run = earlier.next("run");
  run.data.tokenizer.do_lower_case = false;
  refused(run, "data.do_lower_case: is false, and the tokenizer of initial_checkpoint " + earlier.path + " has true");
  run = earlier.next("run");
  run.data.tokenizer.strip_accents = false;
  refused(run, "data.strip_accents: is false, and the tokenizer of initial_checkpoint " + earlier.path + " has true");
  std::filesystem::remove(earlier.path + "/tokenizer.json");
  std::string lines = read_file(earlier.path + "/vocab.txt");
  std::ofstream(earlier.path + "/vocab.txt") << lines.replace(lines.find("\n17\n"), 4, "\ncat\n");
  refused(earlier.next("run"), "was trained with another vocabulary than " + earlier.config.data.vocab_file +
                                   ": token 17 is \"cat\" there and \"17\" here");
  patch_json(earlier.path + "/config.json", {{"model_type", "electra"}});
  CHECK_THROWS_AS(pretrain(earlier.next("run"), false), DataError);
}
