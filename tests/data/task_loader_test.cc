// The loader of fine-tuning: order, balance, labels and positions to go on from.
#include "data/loader/task_loader.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/io/error.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::mismatch;

namespace {

/// Sequences of lengths 3 to 12, whose first id is their index.
std::shared_ptr<TaskFeatures> features_of(TaskKind kind, int32_t count) {
  auto features = std::make_shared<TaskFeatures>();
  features->kind = kind;
  features->num_outputs = 2;
  for (int32_t i = 0; i < count; ++i) {
    TaskSequence& sequence = features->sequences.emplace_back();
    const auto length = static_cast<size_t>(3 + i * 7 % 10);
    sequence.input_ids.assign(length, 100);
    sequence.input_ids.front() = i;
    sequence.token_type_ids.assign(length, 0);
    sequence.token_labels.assign(length, kNoLabel);
    sequence.token_labels.back() = i % 5;
    sequence.label = i % 2;
    sequence.values = {static_cast<float>(i) / 4, 0.25F};
    sequence.start_position = 1;
    sequence.end_position = 2;
  }
  return features;
}

/// The indices of a batch's sequences.
std::vector<int64_t> members(const PackedBatch& batch) {
  const at::Tensor starts = batch.cu_seqlens.narrow(0, 0, batch.num_sequences()).to(at::kLong);
  const at::Tensor ids = batch.input_ids.index_select(0, starts);
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

/// The members of the micro-batches of the next `steps` steps.
std::vector<std::vector<int64_t>> batches_of(TaskLoader& loader, int64_t steps) {
  std::vector<std::vector<int64_t>> result;
  for (int64_t i = 0; i < steps; ++i) {
    for (const PackedBatch& batch : loader.next_step().micro_batches) result.push_back(members(batch));
  }
  return result;
}

constexpr TaskLoaderConfig kConfig{.micro_batch_size = 4, .global_batch_size = 16, .seed = 7};

}  // namespace

TEST_CASE("An epoch has every sequence once, and epochs differ", "[unit][data]") {
  TaskLoader loader(features_of(TaskKind::kClassification, 32), kConfig);
  std::vector<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<int64_t>& order = orders.emplace_back();
    for (const auto& batch : batches_of(loader, 2)) order.insert(order.end(), batch.begin(), batch.end());
    CHECK(std::set<int64_t>(order.begin(), order.end()).size() == 32);
  }
  CHECK(orders[0] != orders[1]);
}

TEST_CASE("Ranks share the micro-batches of one process, with close numbers of tokens", "[unit][data]") {
  const auto features = features_of(TaskKind::kClassification, 64);
  TaskLoader whole(features, kConfig);
  std::multiset<std::vector<int64_t>> expected, got;
  for (const auto& batch : batches_of(whole, 1)) expected.insert(batch);
  for (int64_t rank = 0; rank < 2; ++rank) {
    TaskLoaderConfig config = kConfig;
    config.rank = rank;
    config.world_size = 2;
    TaskLoader loader(features, config);
    const GlobalStep step = loader.next_step();
    for (const PackedBatch& batch : step.micro_batches) got.insert(members(batch));
    CHECK(step.num_tokens() >= 56);  // of about 120 in the step
    CHECK(step.num_tokens() <= 64);
    CHECK(step.of_all_ranks == 4);
    CHECK(step.capacity == 2 * 4 * 12);
  }
  CHECK(got == expected);
}

TEST_CASE("A loader goes on from a state", "[unit][data]") {
  const auto features = features_of(TaskKind::kClassification, 40);
  TaskLoader loader(features, kConfig);
  batches_of(loader, 1);
  const SamplerState state = loader.state();
  CHECK(state.consumed_sequences == 16);
  CHECK(state.consumed_steps == 1);
  TaskLoader straight(features, kConfig), resumed(features, kConfig);
  batches_of(straight, 1);
  resumed.restore(state);
  CHECK(batches_of(resumed, 3) == batches_of(straight, 3));
  CHECK(resumed.state() == straight.state());
  CHECK_THROWS_AS(resumed.restore({.seed = 8}), DataError);
}

TEST_CASE("Labels of a batch are those of its kind of task", "[unit][data]") {
  const std::vector<int64_t> units = {5, 2}, numbers = {70, 71};
  const auto pack = [&](TaskKind kind, int64_t choices) {
    return pack_task_sequences(*features_of(kind, 12), choices, units, numbers);
  };
  const PackedBatch classes = pack(TaskKind::kClassification, 1);
  CHECK(mismatch(classes.labels, at::tensor({1, 0}, at::kLong)).empty());
  CHECK(classes.first_sequence == 70);
  CHECK(sequence_numbers(classes) == numbers);
  CHECK(mismatch(pack(TaskKind::kRegression, 1).labels, at::tensor({1.25F, 0.25F, 0.5F, 0.25F}).view({2, 2})).empty());
  const auto number = features_of(TaskKind::kRegression, 12);
  number->num_outputs = 1;
  for (TaskSequence& sequence : number->sequences) sequence.values.resize(1);
  CHECK(mismatch(pack_task_sequences(*number, 1, units, numbers).labels, at::tensor({1.25F, 0.5F})).empty());
  CHECK(
      mismatch(pack(TaskKind::kQuestionAnswering, 1).labels, at::tensor({1, 2, 1, 2}, at::kLong).view({2, 2})).empty());
  const PackedBatch tokens = pack(TaskKind::kTokenClassification, 1);  // lengths 8 and 7
  CHECK(tokens.labels.numel() == tokens.num_tokens());
  CHECK(tokens.labels[7].item<int64_t>() == 0);
  CHECK(tokens.labels[14].item<int64_t>() == 2);
  CHECK(tokens.labels.ne(kNoLabel).sum().item<int64_t>() == 2);
  const PackedBatch choices = pack(TaskKind::kMultipleChoice, 2);  // sequences 10, 11, 4 and 5
  CHECK(members(choices) == std::vector<int64_t>{10, 11, 4, 5});
  CHECK(choices.labels.numel() == 2);
  CHECK(sequence_numbers(choices) == std::vector<int64_t>{140, 141, 142, 143});
}
