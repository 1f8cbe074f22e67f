// Prompts in the training of sentence encoders, as the argument `prompts` of sentence-transformers puts them before texts.
#include <torch/types.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoint/files.h"
#include "app/inference/embedding_model.h"
#include "app/inference/predictor.h"
#include "app/inference/sentence_pooling.h"
#include "app/interop/sentence_transformers.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/verbs.h"
#include "tests/support/command_testing.h"
#include "tests/support/load_checkpoint.h"
#include "tests/support/tiny_finetuning.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::finetuning_refusal;
using bert::testing::load_checkpoint;
using bert::testing::run_command;
using bert::testing::TemporaryDirectory;
using bert::testing::tiny_task_of;
using nlohmann::json;
using torch::Tensor;

namespace {

/// Eight pairs of numbers, each text behind its prompt.
FinetuneConfig pairs_with(const TemporaryDirectory& directory, const std::string& run, const std::string& query,
                          const std::string& document) {
  FinetuneConfig config = tiny_task_of("embedding", directory);
  config.run_directory = directory.path(run);
  config.data.train_file = config.data.dev_file = directory.path(run + ".csv");
  std::ofstream table(config.data.train_file);
  table << "anchor,positive\n";
  for (int i = 0; i < 8; ++i) table << fmt::format("{}{} 20,{}{} {}\n", query, 5 + i, document, 5 + i, 30 + i % 3);
  config.embedding.sets = {{}};
  config.embedding.sampling = SetSampling::kProportional;
  config.max_steps = 3;
  return config;
}

StateDict weights_of(const FinetuneConfig& config) {
  return load_checkpoint(checkpoint_directory(config.run_directory, config.max_steps)).model;
}

}  // namespace

TEST_CASE("Prompts train as if they stood in the texts, and stay with the model", "[unit][finetune]") {
  const TemporaryDirectory directory;
  const FinetuneConfig written = pairs_with(directory, "written", "40 41 ", "42 ");
  FinetuneConfig prompted = pairs_with(directory, "prompted", "", ""), plain = pairs_with(directory, "plain", "", "");
  prompted.embedding.sets[0].prompts = {"40 41 ", "42 "};
  for (const FinetuneConfig& config : {written, prompted, plain}) REQUIRE(finetune(config, false) == kOk);
  const StateDict expected = weights_of(written), other = weights_of(plain);
  int64_t changed = 0;
  for (const auto& item : weights_of(prompted)) {
    CAPTURE(item.key());
    CHECK(torch::equal(item.value(), expected[item.key()]));
    changed += torch::equal(item.value(), other[item.key()]) ? 0 : 1;
  }
  CHECK(changed > 0);
  const json of_prompted = json::parse(read_file(prompted.run_directory + "/summary.json"));
  CHECK(of_prompted["cosine_ndcg@10"] ==
        json::parse(read_file(written.run_directory + "/summary.json"))["cosine_ndcg@10"]);

  const std::string converted = directory.path("hf");
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", prompted.run_directory, "--output", converted})
              .code == kOk);
  const json kept = json::parse(read_file(converted + "/config_sentence_transformers.json"));
  CHECK(kept["prompts"] == json({{"query", "40 41 "}, {"document", "42 "}}));

  prompted.embedding.sets[0].prompts = {"1 ", "2 ", "3 "};
  prompted.run_directory += "-refused";
  CHECK_THAT(finetuning_refusal<ConfigError>(prompted), Contains("3 prompts") && Contains("2 columns of texts"));
}

TEST_CASE("A pooling that leaves prompts out leaves them out in training", "[unit][finetune]") {
  // The pooling of one text after the other is what answers use, which are checked against sentence-transformers.
  const std::vector<std::vector<int64_t>> texts = {{2, 40, 41, 7, 8, 3}, {2, 9, 3}, {2, 40, 41}, {2, 40, 9, 10, 3}};
  const std::vector<int64_t> skipped = {3, 0, 0, 2};  // a text that is nothing but its prompt is read
  PackedBatch batch;
  std::vector<int64_t> ids, positions;
  std::vector<int32_t> offsets = {0};
  for (const auto& text : texts) {
    for (size_t i = 0; i < text.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    ids.insert(ids.end(), text.begin(), text.end());
    offsets.push_back(static_cast<int32_t>(ids.size()));
  }
  batch.input_ids = torch::tensor(ids);
  batch.position_ids = torch::tensor(positions);
  batch.cu_seqlens = torch::tensor(offsets, torch::kInt);
  const Tensor states = torch::randn({batch.num_tokens(), 4});
  const std::vector<Tensor> prompts = {torch::tensor({2, 40, 41}), torch::tensor({2, 40})};
  for (const SentencePooling mode :
       {SentencePooling::kCls, SentencePooling::kMax, SentencePooling::kMean, SentencePooling::kMeanSqrtLen,
        SentencePooling::kWeightedMean, SentencePooling::kLastToken}) {
    CAPTURE(name_of_value(mode));
    const SentenceHead head({.pooling = {mode}}, StateDict(), torch::kCPU);
    const Tensor pooled = pool_sequences({mode}, states, batch, prompts);
    for (size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(i);
      const auto row = static_cast<int64_t>(i);
      const Tensor expected = head.pool(states.slice(0, offsets[i], offsets[i + 1]), skipped[i]);
      CHECK((pooled[row] - expected).abs().max().item<double>() < 1e-5);
    }
  }
  const TemporaryDirectory directory;
  FinetuneConfig start = pairs_with(directory, "start", "", "");
  REQUIRE(finetune(start, false) == kOk);
  const std::string converted = directory.path("hf");
  REQUIRE(run_command(convert_command,
                      {"convert", "--to", "huggingface", "--input", start.run_directory, "--output", converted})
              .code == kOk);
  const std::string pooling = converted + "/1_Pooling/config.json";
  json modules = json::parse(read_file(pooling));
  std::vector<Tensor> vectors;
  for (const bool include : {true, false}) {
    modules["include_prompt"] = include;
    std::ofstream(pooling) << modules.dump();
    FinetuneConfig config = pairs_with(directory, include ? "with" : "without", "", "");
    config.initial_checkpoint = converted;
    config.embedding.sets[0].prompts = {"40 41 "};
    REQUIRE(finetune(config, false) == kOk);
    const Pretrained trained = load_pretrained(config.run_directory);
    CHECK(trained.model.sentence->include_prompt == include);
    vectors.push_back(trained.weights["bert.encoder.layer.0.attention.self.query.weight"].clone());
  }
  CHECK_FALSE(torch::equal(vectors[0], vectors[1]));
}
