// Accumulation on a whole BERT with dropout: k micro-steps of b sequences equal one step of k b sequences.
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "app/benchmark/random_batch.h"
#include "app/train/step/training_step.h"
#include "optim/data_parallel.h"
#include "tests/testing.h"

using namespace bert;
using torch::Tensor;

namespace {

constexpr int64_t kSequences = 8;

BertConfig tiny_model() {
  return {.vocab_size = 64,
          .hidden_size = 16,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 32,
          .max_position_embeddings = 48};
}

/// The sequences of `whole` in `parts` micro-batches. Dropout keys and first_sequence stay those of `whole`.
std::vector<PackedBatch> split(const PackedBatch& whole, int64_t parts) {
  std::vector<PackedBatch> result;
  const auto* ends = whole.cu_seqlens.const_data_ptr<int32_t>();
  const int64_t sequences = whole.num_sequences() / parts;
  for (int64_t first = 0; first < whole.num_sequences(); first += sequences) {
    const int64_t begin = ends[first], tokens = ends[first + sequences] - begin;
    const Tensor masked = whole.masked_positions.ge(begin).logical_and(whole.masked_positions.lt(begin + tokens));
    PackedBatch& part = result.emplace_back(whole);
    for (Tensor PackedBatch::*field : {&PackedBatch::input_ids, &PackedBatch::token_type_ids,
                                       &PackedBatch::position_ids, &PackedBatch::dropout_keys}) {
      part.*field = (whole.*field).narrow(0, begin, tokens).contiguous();
    }
    part.cu_seqlens = (whole.cu_seqlens.narrow(0, first, sequences + 1) - begin).to(at::kInt);
    part.first_sequence = whole.first_sequence + first;
    part.masked_positions = whole.masked_positions.masked_select(masked) - begin;
    part.masked_ids = whole.masked_ids.masked_select(masked);
    part.next_sentence_labels = whole.next_sentence_labels.narrow(0, first, sequences).contiguous();
  }
  return result;
}

/// A batch of sequences of 20 tokens with 3 masked ones each, or of sequences whose lengths and masked counts all
/// differ.
PackedBatch batch_of(bool equal, int64_t step) {
  std::vector<int64_t> lengths(kSequences, 20);
  if (!equal) lengths = {7, 48, 12, 31, 5, 20, 40, 26};
  return random_batch({.lengths = lengths, .vocab_size = 64, .first_sequence = kSequences * step},
                      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step + 1)));
}

struct Case {
  std::string optimizer, average;
  bool equal_masked_counts;
};

const std::vector<Case> kCases = {{"lamb", "masked_tokens", false},
                                  {"lamb", "micro_batches", true},
                                  {"adam", "masked_tokens", false},
                                  {"adam", "micro_batches", true},
                                  {"adamw", "masked_tokens", false}};

PretrainConfig config_of(const Case& test) {
  PretrainConfig config;
  config.model = tiny_model();
  config.optimizer.type = value_named<OptimizerType>(test.optimizer).value();
  config.optimizer.average = value_named<GradientAverage>(test.average).value();
  config.schedule = {.type = ScheduleType::kConstant, .warmup_proportion = 0.0};
  return config;
}

/// The largest relative difference of norms between the tensors of two lists, over tensors with norms above `floor`.
double worst(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double floor = 1e-12) {
  double result = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    result = std::max(result, ((got[i] - want[i]).norm() / want[i].norm().clamp_min(floor)).item<double>());
  }
  return result;
}

/// The changes of the parameters by three steps of `bert pretrain` in double.
std::vector<Tensor> updates_in_double(const Case& test, int64_t parts, int64_t dropout_seed = 5) {
  TrainingStep step(config_of(test), c10::kCPU, nullptr, at::kDouble);
  step.model->dropout_seed = dropout_seed;
  std::vector<Tensor> updates;
  for (const Tensor& parameter : step.model->parameters()) updates.push_back(parameter.detach().clone());
  for (int64_t i = 0; i < 3; ++i) step.run(split(batch_of(test.equal_masked_counts, i), parts));
  CHECK(step.applied_steps() == 3);
  const std::vector<Tensor> after = step.model->parameters();
  for (size_t i = 0; i < after.size(); ++i) updates[i] = after[i].detach() - updates[i];
  return updates;
}

/// The gradients of one step of `bert pretrain`, and its losses as they are logged.
std::vector<Tensor> gradients(const Case& test, int64_t parts) {
  TrainingStep step(config_of(test), c10::kCPU, nullptr);
  step.run(split(batch_of(test.equal_masked_counts, 0), parts));
  std::vector<Tensor> result;
  for (const Tensor& parameter : step.model->parameters()) result.push_back(parameter.grad().flatten());
  const TrainingStep::MeanLoss loss = step.take_mean_loss();
  return {at::cat(result), at::scalar_tensor(loss.mlm), at::scalar_tensor(loss.nsp)};
}

}  // namespace

TEST_CASE("k micro-steps of b sequences update as one step of k b does in double, with dropout", "[unit][optim]") {
  constexpr double kFloor = 1e-8;  // the gradient of a key's bias consists of rounding errors
  for (const Case& test : kCases) {
    CAPTURE(test.optimizer, test.average);
    const double limit =
        test.average == std::string_view("masked_tokens") ? 2e-6 : 1e-8;  // shares of masked tokens are fp32
    const std::vector<Tensor> one = updates_in_double(test, 1);
    for (const int64_t parts : {2L, 8L}) CHECK(worst(updates_in_double(test, parts), one, kFloor) <= limit);
    CHECK(worst(updates_in_double(test, 8, /*dropout_seed=*/6), one, kFloor) > 1e-2);  // the twin: other masks
  }
  // The second twin: with unequal masked counts, the mean of means is a different gradient.
  const Case unequal{"lamb", "micro_batches", false};
  CHECK(worst(updates_in_double(unequal, 8), updates_in_double(unequal, 1), kFloor) > 1e-2);
}

TEST_CASE("A training step of k micro-batches has the gradients and losses of one of the whole batch",
          "[unit][training_step]") {
  for (const Case& test : kCases) {
    CAPTURE(test.optimizer, test.average);
    const std::vector<Tensor> one = gradients(test, 1);
    for (const int64_t parts : {2L, 8L})
      CHECK(worst(gradients(test, parts), one) <= 1e-5);  // fp32 sums in another order
  }
  const Case unequal{"lamb", "micro_batches", false};
  CHECK(worst(gradients(unequal, 8), gradients(unequal, 1)) > 1e-2);
}
