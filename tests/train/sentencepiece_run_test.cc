// A SentencePiece model from examples over training, checkpoint and export to masked words.
#include <algorithm>
#include <fstream>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/inference/predictor.h"
#include "app/system/exit_codes.h"
#include "app/train/pretrain.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Approx;
using bert::testing::load_checkpoint;
using bert::testing::shared_data;
using bert::testing::TemporaryDirectory;

namespace {

int run(int (*command)(int, char**), std::vector<std::string> arguments) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return command(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("A run with a SentencePiece model goes from text to masked words", "[unit][trainer]") {
  if (shared_data().empty()) BERT_SKIP("needs ../shared/data/sentencepiece");
  const TemporaryDirectory directory;
  const std::string model = shared_data() + "/sentencepiece/test_model.model", text = directory.path("text"),
                    shard = directory.path("pieces.shard"), file = directory.path("bert.pt");
  {
    std::ofstream lines(text);
    for (int i = 0; i < 20; ++i) lines << "Hello world.\nI saw a girl with a telescope.\n\n";
  }
  REQUIRE(run(data_command, {"data", "create", "--input", text, "--vocab", model, "--output", shard, "--cased",
                             "--max-seq-length", "24", "--dupe-factor", "2"}) == kOk);
  PretrainConfig config = bert::testing::tiny(directory, "run");
  config.model.vocab_size = 1008;
  config.model.max_position_embeddings = 24;
  config.data.vocab_file = model;
  config.data.train = {shard};
  config.stop_at_step = 2;
  REQUIRE(pretrain(config, false) == kOk);
  config.stop_at_step = 3;
  REQUIRE(pretrain(config, false) == kOk);
  const std::string checkpoint = checkpoint_directory(config.run_directory, 3);
  CHECK(verify_checkpoint(checkpoint).contains(kTokenizerFile));
  CHECK(load_checkpoint(checkpoint).state.model.tokenizer_model == read_file(model));

  REQUIRE(run(export_command, {"export", "--checkpoint", checkpoint, "--output", file}) == kOk);
  Predictor from_checkpoint(config.run_directory), from_export(file);
  const std::string sentence = "Hello [MASK]. I [MASK] a girl.";
  // The ids of spm_encode (sentencepiece 0.1.97) for "Hello" and "I saw"; [MASK] is the last of the added tokens.
  const std::vector<std::string> tokens = from_checkpoint.features(sentence).tokens;
  REQUIRE(tokens.size() > 6);
  CHECK(std::vector<std::string>(tokens.begin(), tokens.begin() + 5) ==
        std::vector<std::string>{"[CLS]", "\u2581He", "ll", "o", "[MASK]"});
  CHECK(std::ranges::count(tokens, "[MASK]") == 2);
  const MaskFilling a = from_checkpoint.fill_mask(sentence, 1008), b = from_export.fill_mask(sentence, 3);
  REQUIRE(a.masks.size() == 2);
  REQUIRE(b.masks.size() == 2);
  CHECK(a.masks[0].size() == 1004);
  for (size_t mask = 0; mask < 2; ++mask) {
    CHECK(a.masks[mask][0].score == Approx(b.masks[mask][0].score).epsilon(1e-5));
    for (const Filler& filler : a.masks[mask]) CHECK(filler.token_str.find("\u2581") != 0);
  }
  CHECK(a.masks[1][0].sequence == "Hello [MASK]. I " + a.masks[1][0].token_str + " a girl.");
}
