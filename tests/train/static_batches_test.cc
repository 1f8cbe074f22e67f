// Batches of fixed shapes: their padding changes neither the forward pass nor, but for rounding, the gradients.
#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include "app/train/step/training_step.h"
#include "data/loader/collate.h"
#include "tests/support/tiny_pretraining.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// The first sequences of a shard in one batch; static with `tokens`.
PackedBatch batch_of(const std::shared_ptr<const PretrainingShards>& shards, int64_t sequences, int64_t tokens) {
  SequenceReader reader(shards, {{.name = "", .examples = shards->size(), .weight = 1}}, /*seed=*/1, /*shuffle=*/true,
                        /*replace_damaged=*/false);
  std::vector<NumberedSequence> numbered;
  for (int64_t number = 0; number < sequences; ++number) numbered.push_back({number, reader.read(number)});
  return Collator({}, {.tokens = tokens, .longest_row = shards->longest_row()})(numbered);
}

torch::Tensor gradients(const TrainingStep& step) {
  std::vector<torch::Tensor> parts;
  for (const NamedParameter& parameter : step.parameters()) parts.push_back(parameter.tensor.grad().flatten());
  return torch::cat(parts).to(torch::kDouble);
}

PretrainConfig model_of(int64_t hidden, const std::string& precision) {
  PretrainConfig config;
  config.precision = value_named<Precision>(precision).value();
  config.optimizer.average = GradientAverage::kMaskedTokens;
  config.optimizer.lr = 0;  // so that two steps have the same weights
  config.model = {.vocab_size = kVocabulary,
                  .hidden_size = hidden,
                  .num_hidden_layers = 3,
                  .num_attention_heads = hidden / 16,
                  .intermediate_size = 4 * hidden,
                  .max_position_embeddings = 64};
  return config;
}

TEST_CASE("The padding of a static batch changes no bit of the forward pass, and gradients by rounding alone",
          "[unit][dataloader]") {
  const TemporaryDirectory directory;
  write_counting_shard(directory.path("a.shard"), 60, 1);
  const auto shards = std::make_shared<const PretrainingShards>(std::vector{directory.path("a.shard")});
  for (const std::string precision : {"fp32", "bf16"}) {
    for (const int64_t hidden : {32, 256}) {
      for (const auto& [sequences, tokens] : std::vector<std::pair<int64_t, int64_t>>{{1, 200}, {9, 200}, {23, 512}}) {
        CAPTURE(precision, hidden, sequences, tokens);
        TrainingStep step(model_of(hidden, precision), c10::kCPU, nullptr);
        const PackedBatch exact = batch_of(shards, sequences, 0), padded = batch_of(shards, sequences, tokens);
        REQUIRE(padded.num_tokens() == tokens);
        REQUIRE(padded.padding.tokens == tokens - exact.num_tokens());
        REQUIRE(padded.padding.masked > 0);
        {
          const torch::NoGradGuard no_grad;
          const PretrainingOutput want = step.forward(exact), got = step.forward(padded);
          // MKL and oneDNN compute a row of larger products in an order that depends on the number of rows.
          const bool bits = hidden == 32;
          const auto same = [&](const torch::Tensor& x, const torch::Tensor& y) {
            const double limit = precision == "fp32" ? 1e-6 : 1e-2;
            return bits ? x.equal(y) : ((x - y).norm() <= limit * y.norm()).item<bool>();
          };
          CHECK(same(got.mlm_logits.narrow(0, 0, exact.num_masked()), want.mlm_logits));
          CHECK(same(got.nsp_logits.narrow(0, 0, sequences), want.nsp_logits));
          const PretrainingLoss wanted = pretraining_loss(want, exact, kVocabulary),
                                loss = pretraining_loss(got, padded, kVocabulary);
          CHECK(same(loss.mlm, wanted.mlm));
          CHECK(same(loss.nsp, wanted.nsp));
        }
        step.run({&exact, 1});
        const torch::Tensor want = gradients(step);
        step.run({&padded, 1});
        const double limit = precision == "fp32" ? 1e-6 : 1e-2;  // bf16 rounds each part of a sum over tokens
        CHECK((gradients(step) - want).norm().item<double>() <= limit * want.norm().item<double>());
        CHECK(want.norm().item<double>() > 0);
      }
    }
  }
}

}  // namespace
