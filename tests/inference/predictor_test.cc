// Answers of a trained model in a program.
#include "app/inference/predictor.h"

#include <torch/csrc/jit/serialization/import.h>
#include <torch/types.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "app/inference/pretrained.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "model/state_dict.h"
#include "tests/support/command_testing.h"
#include "tests/support/random_checkpoint.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_export;
using bert::testing::TemporaryDirectory;
using bert::testing::texts_of_mixed_lengths;
using bert::testing::write_random_checkpoint;

TEST_CASE("A checkpoint and its export fill in the same words", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("bert.pt");
  REQUIRE(run_export(checkpoint, file) == 0);
  Predictor from_checkpoint(checkpoint), from_export(file);
  const std::string text = "the [MASK] sat. [MASK]s";
  const MaskFilling a = from_checkpoint.fill_mask(text, 3), b = from_export.fill_mask(text, 3);
  REQUIRE(a.masks.size() == 2);
  REQUIRE(b.masks.size() == 2);
  for (size_t mask = 0; mask < 2; ++mask) {
    REQUIRE(a.masks[mask].size() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(a.masks[mask][i].token == b.masks[mask][i].token);
      CHECK(a.masks[mask][i].score == bert::testing::Approx(b.masks[mask][i].score).epsilon(1e-5));
    }
    CHECK(a.masks[mask][0].score >= a.masks[mask][1].score);
  }
  const Filler& second = a.masks[1][0];
  CHECK(second.sequence == "the [MASK] sat. " + second.token_str + "s");
}

TEST_CASE("Scores and features are those that LibTorch computes from the export", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("bert.pt");
  REQUIRE(run_export(checkpoint, file) == 0);
  torch::jit::Module script = torch::jit::load(file);
  // [CLS] the [MASK] sat . [MASK] [UNK] [SEP], by hand
  const torch::Tensor ids = torch::tensor({{2, 5, 4, 7, 9, 4, 1, 3}}, torch::kLong);
  const auto tuple = script.forward({ids, torch::zeros_like(ids), torch::ones_like(ids)}).toTuple();
  const torch::Tensor logits = tuple->elements()[0].toTensor()[0], scores = logits.softmax(-1);
  for (const std::string& path : {checkpoint, file}) {
    const Predictor predictor(path);
    const MaskFilling filling = predictor.fill_mask("the [MASK] sat. [MASK]s", 10);
    REQUIRE(filling.masks.size() == 2);
    for (size_t mask = 0; mask < 2; ++mask) {
      REQUIRE(filling.masks[mask].size() == 10);
      for (const Filler& filler : filling.masks[mask]) {
        CHECK(filler.score ==
              bert::testing::Approx(scores[mask == 0 ? 2 : 5][filler.token].item<double>()).epsilon(1e-5));
      }
    }
    // The next-sentence head of the export reads the pooled vector that the features show.
    const Features features = predictor.features("the [MASK] sat. [MASK]s");
    const StateDict weights = load_pretrained(path).weights;
    const torch::Tensor nsp = torch::linear(features.pooler_output, weights["cls.seq_relationship.weight"],
                                            weights["cls.seq_relationship.bias"]);
    CHECK(torch::allclose(nsp, tuple->elements()[1].toTensor()[0], 1e-5, 1e-6));
  }
}

namespace {

void check_same(const MaskFilling& got, const MaskFilling& want) {
  CHECK(got.text == want.text);
  REQUIRE(got.masks.size() == want.masks.size());
  for (size_t mask = 0; mask < got.masks.size(); ++mask) {
    REQUIRE(got.masks[mask].size() == want.masks[mask].size());
    for (size_t i = 0; i < got.masks[mask].size(); ++i) {
      const Filler &a = got.masks[mask][i], &b = want.masks[mask][i];
      CHECK(a.token == b.token);
      CHECK(a.token_str == b.token_str);
      CHECK(a.sequence == b.sequence);
      CHECK(a.score == bert::testing::Approx(b.score).epsilon(1e-5));
    }
  }
}

void check_same(const Features& got, const Features& want) {
  CHECK(got.tokens == want.tokens);
  CHECK(got.last_hidden_state.size(0) == static_cast<int64_t>(got.tokens.size()));
  CHECK(torch::allclose(got.last_hidden_state, want.last_hidden_state, 0, 1e-5));
  CHECK(torch::allclose(got.pooler_output, want.pooler_output, 0, 1e-5));
}

}  // namespace

TEST_CASE("The answer for a text does not depend on its batch", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Pretrained pretrained = load_pretrained(write_random_checkpoint(directory));
  const Predictor alone(pretrained);
  std::vector<std::string> texts = texts_of_mixed_lengths();
  for (const int64_t batch_size : {1, 3, 32}) {
    CAPTURE(batch_size);
    const Predictor predictor(pretrained, {.batch_size = batch_size});
    const std::vector<MaskFilling> fillings = predictor.fill_mask(texts, 4);
    const std::vector<Features> features = predictor.features(texts);
    REQUIRE(fillings.size() == texts.size());
    REQUIRE(features.size() == texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(texts[i]);
      check_same(fillings[i], alone.fill_mask(texts[i], 4));
      check_same(features[i], alone.features(texts[i]));
    }
  }
  CHECK(alone.fill_mask(std::vector<std::string>{}).empty());
  CHECK(alone.features(std::vector<std::string>{}).empty());
  CHECK(alone.fill_mask({"[MASK] sat", "the [MASK]"}).size() == 2);  // a list, not the two ends of a range
  CHECK(alone.features({"the"}).size() == 1);
}

TEST_CASE("Batches are limited by tokens, and answers keep the order of the texts", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Pretrained pretrained = load_pretrained(write_random_checkpoint(directory));
  const Predictor alone(pretrained);
  const std::vector<std::string> texts = texts_of_mixed_lengths();
  for (const int64_t batch_tokens : {1, 20, 1000}) {
    CAPTURE(batch_tokens);
    const Predictor predictor(pretrained, {.batch_tokens = batch_tokens});
    const std::vector<MaskFilling> fillings = predictor.fill_mask(texts, 4);
    for (size_t i = 0; i < texts.size(); ++i) check_same(fillings.at(i), alone.fill_mask(texts[i], 4));
  }
  CHECK_THROWS_AS(Predictor(pretrained, {.batch_tokens = 0}), c10::Error);
}

TEST_CASE("Embeddings are the hidden states, pooled", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Predictor predictor(write_random_checkpoint(directory), {.batch_size = 4});
  const std::vector<std::string> texts = texts_of_mixed_lengths();
  const auto embed = [&](Pooling pooling, std::vector<int64_t> layers = {-1}) {
    return predictor.embed(texts, {.pooling = pooling, .layers = std::move(layers)});
  };
  const auto mean = embed(Pooling::kMean), cls = embed(Pooling::kCls), pooler = embed(Pooling::kPooler),
             none = embed(Pooling::kNone), all = embed(Pooling::kNone, {0, 1, 2}),
             named = embed(Pooling::kMean, {2, -3});
  for (size_t i = 0; i < texts.size(); ++i) {
    const Features features = predictor.features(texts[i]);
    const auto same = [](const torch::Tensor& a, const torch::Tensor& b) { return torch::allclose(a, b, 0, 1e-5); };
    CHECK(same(mean.at(i), features.last_hidden_state.mean(0)));
    CHECK(same(cls.at(i), features.last_hidden_state[0]));
    CHECK(same(pooler.at(i), features.pooler_output));
    CHECK(same(none.at(i), features.last_hidden_state));
    CHECK(predictor.tokens(texts[i]) == features.tokens);
    REQUIRE(all.at(i).dim() == 3);  // embeddings and two layers
    CHECK(same(all[i][2], features.last_hidden_state));
    CHECK_FALSE(same(all[i][1], features.last_hidden_state));
    CHECK(same(named.at(i)[0], mean[i]));
    CHECK(same(named.at(i)[1], all[i][0].mean(0)));
  }
  CHECK_THROWS_AS(embed(Pooling::kMean, {3}), c10::Error);
  CHECK_THROWS_AS(embed(Pooling::kMean, {-4}), c10::Error);
  CHECK_THROWS_AS(embed(Pooling::kMean, {}), c10::Error);
  CHECK_THROWS_AS(embed(Pooling::kPooler, {-2}), c10::Error);
}

TEST_CASE("With int8 the best words and their scores are near those of fp32", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const Predictor exact(checkpoint), bytes(checkpoint, {.int8 = true}),
      small(checkpoint, {.batch_size = 2, .int8 = true});
  const std::vector<std::string> texts = texts_of_mixed_lengths();
  const auto want = exact.fill_mask(texts, 10), got = bytes.fill_mask(texts, 10), again = small.fill_mask(texts, 10);
  bool differs = false;
  for (size_t i = 0; i < texts.size(); ++i) {
    check_same(again[i], got[i]);  // a text's bytes do not depend on its batch
    for (size_t mask = 0; mask < want[i].masks.size(); ++mask) {
      std::vector<double> scores(10);
      for (const Filler& filler : want[i].masks[mask]) scores[static_cast<size_t>(filler.token)] = filler.score;
      for (const Filler& filler : got[i].masks[mask]) {
        const double score = scores[static_cast<size_t>(filler.token)];
        differs = differs || score != filler.score;
        CHECK(filler.score == bert::testing::Approx(score).epsilon(0.02));
      }
    }
  }
  CHECK(differs);
  CHECK_THROWS_WITH(Predictor(checkpoint, {.dtype = torch::kBFloat16, .int8 = true}),
                    bert::testing::Contains("int8 needs dtype fp32 and the CPU"));
}

TEST_CASE("All texts without an answer are known before any is computed", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Predictor predictor(write_random_checkpoint(directory));
  const std::vector<std::string> texts = {"[MASK]", "the", "[MASK] the the the the the the the the the the",
                                          "a [MASK]"};
  const auto places = [&](Task task) {
    std::vector<size_t> indices;
    for (size_t i = 0; i < texts.size(); ++i) {
      try {
        static_cast<void>(predictor.encode(task, texts[i]));
      } catch (const TextError&) {
        indices.push_back(i);
      }
    }
    return indices;
  };
  CHECK(places(Task::kFillMask) == std::vector<size_t>{1, 2});
  CHECK(places(Task::kFeatures) == std::vector<size_t>{2});
}

TEST_CASE("A predictor answers several threads at once as it answers one", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Predictor predictor(write_random_checkpoint(directory), {.batch_size = 5});
  const std::vector<std::string> texts = texts_of_mixed_lengths();
  const std::vector<MaskFilling> fillings = predictor.fill_mask(texts, 3);
  const std::vector<Features> features = predictor.features(texts);
  constexpr size_t kThreads = 4;
  std::vector<std::vector<MaskFilling>> all_fillings(kThreads);
  std::vector<std::vector<Features>> all_features(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        all_fillings[i] = predictor.fill_mask(texts, 3);
        all_features[i] = predictor.features(texts);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) {
    for (size_t text = 0; text < texts.size(); ++text) {
      check_same(all_fillings[i].at(text), fillings[text]);
      check_same(all_features[i].at(text), features[text]);
    }
  }
}

TEST_CASE("Low precision changes scores by its rounding", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory), file = directory.path("bert.pt");
  const std::string text = "the [MASK] sat.";
  const auto scores_of = [&](const Predictor& predictor) {
    std::vector<double> scores(10);
    const MaskFilling filling = predictor.fill_mask(text, 10);
    for (const Filler& filler : filling.masks.at(0)) scores[static_cast<size_t>(filler.token)] = filler.score;
    return scores;
  };
  const std::vector<double> want = scores_of(Predictor(checkpoint));
  const auto check_near = [&](const Predictor& predictor, double epsilon) {
    const std::vector<double> got = scores_of(predictor);
    CHECK(got != want);
    for (size_t i = 0; i < want.size(); ++i) CHECK(got[i] == bert::testing::Approx(want[i]).epsilon(epsilon));
    CHECK(predictor.features(text).last_hidden_state.dtype() == torch::kFloat);
  };
  check_near(Predictor(checkpoint, {.dtype = torch::kBFloat16}), 0.03);
  check_near(Predictor(checkpoint, {.dtype = torch::kHalf}), 0.004);
  REQUIRE(bert::testing::run_command(export_command,
                                     {"export", "--checkpoint", checkpoint, "--output", file, "--precision", "bf16"})
              .code == kOk);
  check_near(Predictor(file), 0.03);
}

TEST_CASE("A model of this process answers without a file", "[unit][predict]") {
  const TemporaryDirectory directory;
  Pretrained pretrained = load_pretrained(write_random_checkpoint(directory));
  BertForPreTraining model(pretrained.model.config);
  init_weights(*model, pretrained.model.config, 3);
  const MaskFilling want = Predictor(pretrained).fill_mask("the [MASK]");
  pretrained.weights = state_dict(*model);
  check_same(Predictor(pretrained).fill_mask("the [MASK]"), want);  // the checkpoint has the same seed
  pretrained.weights.erase("cls.predictions.bias");
  CHECK_THROWS_AS(Predictor(pretrained), DataError);
  CHECK_THROWS_AS(Predictor(Pretrained{}), c10::Error);  // no tokenizer
}

TEST_CASE("A text without an answer is named by its place in the list", "[unit][predict]") {
  const TemporaryDirectory directory;
  const Predictor predictor(write_random_checkpoint(directory));
  const auto index_of_failure = [](const auto& ask) -> size_t {
    try {
      static_cast<void>(ask());
    } catch (const TextError& error) {
      return error.index;
    }
    return 99;
  };
  CHECK(index_of_failure([&] { return predictor.fill_mask({"[MASK]", "the cat", "sat"}); }) == 1);
  CHECK(index_of_failure([&] { return predictor.fill_mask("the cat"); }) == 0);
  CHECK(index_of_failure([&] {
          return predictor.features({"", "the", "the the the the the the the the the the the"});
        }) == 2);
  CHECK_THROWS_AS(predictor.fill_mask("[MASK]", 0), c10::Error);
  CHECK_THROWS_AS(Predictor(directory.path("checkpoint"), {.batch_size = 0}), c10::Error);
  CHECK_THROWS_AS(Predictor(directory.path("checkpoint"), {.dtype = torch::kDouble}), c10::Error);
}

TEST_CASE("The error of a prediction names the fault of a text or a file", "[unit][predict]") {
  const TemporaryDirectory directory;
  Predictor predictor(write_random_checkpoint(directory));
  CHECK_THROWS_AS(predictor.fill_mask("the cat sat.", 5), DataError);
  CHECK_THROWS_AS(predictor.fill_mask("the the the the the the the the the the [MASK]", 5), DataError);
  CHECK(predictor.fill_mask("[MASK]", 1000).masks.front().size() == 10);  // at most the number of tokens
  CHECK_THROWS_AS(Predictor(directory.path("absent")), InputMissing);
  std::ofstream(directory.path("text")) << "not an archive";
  CHECK_THROWS_AS(Predictor(directory.path("text")), DataError);
}

TEST_CASE("Rows of the model that no token has are never filled in", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory, false, 16), file = directory.path("bert.pt");
  REQUIRE(run_export(checkpoint, file) == 0);
  for (const std::string& path : {checkpoint, file}) {
    const MaskFilling filling = Predictor(path).fill_mask("the [MASK].", 1000);
    REQUIRE(filling.masks.front().size() == 10);
    double sum = 0;
    for (const Filler& filler : filling.masks.front()) sum += filler.score;
    CHECK(sum == bert::testing::Approx(1));
  }
}

TEST_CASE("Features have a vector per token and a pooled one", "[unit][predict]") {
  const TemporaryDirectory directory;
  Predictor predictor(write_random_checkpoint(directory));
  const Features features = predictor.features("The cats.");
  CHECK(features.tokens == std::vector<std::string>{"[CLS]", "the", "cat", "##s", ".", "[SEP]"});
  CHECK(features.last_hidden_state.sizes() == torch::IntArrayRef({6, 16}));
  CHECK(features.pooler_output.sizes() == torch::IntArrayRef({16}));
}

TEST_CASE("A checkpoint that is cut before its weights are copied is an error, not zeros", "[unit][predict]") {
  const TemporaryDirectory directory;
  const std::string checkpoint = write_random_checkpoint(directory);
  const Pretrained pretrained = load_pretrained(checkpoint);
  CHECK_NOTHROW(Predictor(pretrained));
  const std::string weights = std::filesystem::canonical(checkpoint).string() + "/model.safetensors";
  std::filesystem::resize_file(weights, std::filesystem::file_size(weights) / 2);
  CHECK_THROWS_AS(Predictor(pretrained), DataError);
  CHECK_THROWS_WITH(Predictor(pretrained), bert::testing::Contains("model.safetensors: byte ") &&
                                               bert::testing::Contains("the file was cut to "));
}
