// Tiny training steps on the device, their batches, and what they cost.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/benchmark/random_batch.h"
#include "app/config/pretrain_config.h"
#include "app/train/step/optimizer_step.h"
#include "data/tasks/task_definition.h"
#include "data/tasks/task_sequence.h"
#include "tests/null_device/null_device.h"

namespace bert::testing {

inline constexpr int64_t kWords = 101;

/// A BERT of two layers that every attention backend can compute.
inline BertConfig tiny_model() {
  return {.vocab_size = kWords,
          .hidden_size = 32,
          .num_hidden_layers = 2,
          .num_attention_heads = 2,
          .intermediate_size = 64,
          .max_position_embeddings = 32};
}

inline PretrainConfig tiny_step(const std::string& precision) {
  PretrainConfig config;
  config.precision = value_named<Precision>(precision).value();
  config.model = tiny_model();
  config.optimizer.lr = 1e-3;
  config.amp.init_scale = 1024;  // no step overflows
  config.max_steps = 100;
  return config;
}

/// Random micro-batches of one step on the CPU.
inline std::vector<PackedBatch> random_micro_batches(int64_t step, int64_t count,
                                                     const std::vector<int64_t>& lengths = {4, 9, 3, 7}) {
  std::vector<PackedBatch> result;
  for (int64_t micro = 0; micro < count; ++micro) {
    const int64_t number = step * count + micro;
    result.push_back(
        random_batch({.lengths = lengths, .vocab_size = kWords, .first_sequence = number * std::ssize(lengths)},
                     at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(number))));
  }
  return result;
}

/// The batch with labels of a task in place of masked tokens.
inline PackedBatch with_labels(PackedBatch batch, TaskKind kind, int64_t classes, int64_t choices) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(batch.first_sequence));
  const int64_t sequences = batch.num_sequences();
  const auto integers = [&](int64_t high, at::IntArrayRef sizes) {
    return at::randint(high, sizes, generator, at::TensorOptions().dtype(at::kLong));
  };
  batch.masked_positions = at::zeros({0}, at::kLong);
  batch.masked_ids = at::Tensor();
  batch.next_sentence_labels = at::Tensor();
  if (kind == TaskKind::kRegression) batch.labels = at::rand({sequences}, generator);
  if (kind == TaskKind::kClassification) batch.labels = integers(classes, {sequences});
  if (kind == TaskKind::kMultipleChoice) batch.labels = integers(choices, {sequences / choices});
  if (kind == TaskKind::kQuestionAnswering) batch.labels = integers(3, {sequences, 2});
  if (kind == TaskKind::kTokenClassification) {
    batch.labels = integers(classes, {batch.num_tokens()});
    batch.labels.masked_fill_(batch.position_ids.remainder(3).eq(0), kNoLabel);
  }
  return batch;
}

/// The batches in pinned memory, as a loader makes them.
inline std::vector<PackedBatch> pinned(std::vector<PackedBatch> batches) {
  for (PackedBatch& batch : batches) {
    PackedBatch::visit_tensors(batch, [](at::Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.pin_memory();
    });
  }
  return batches;
}

inline std::vector<PackedBatch> moved(const std::vector<PackedBatch>& batches, c10::Device device) {
  std::vector<PackedBatch> result;
  for (const PackedBatch& batch : batches) result.push_back(batch.to(device));
  return result;
}

/// Tensors that a copy to the device takes.
inline int64_t copies_of(const std::vector<PackedBatch>& batches) {
  int64_t copies = 0;
  for (const PackedBatch& batch : batches) {
    PackedBatch::visit_tensors(batch,
                               [&](const at::Tensor& tensor) { copies += tensor.defined() && tensor.numel() > 0; });
  }
  return copies;
}

/// What a stretch of a program asks of the device, but for its work there.
struct Costs {
  int64_t waits = 0, allocations = 0, host_allocations = 0, pageable = 0, to_host = 0, from_pinned = 0;
  bool operator==(const Costs&) const = default;
};

inline Costs costs() {
  using null_device::count;
  return {.waits = count("wait"),
          .allocations = count("allocation"),
          .host_allocations = count("host allocation"),
          .pageable = count("pageable to device") + count("device to pageable"),
          .to_host = count("device to pinned"),
          .from_pinned = count("pinned to device")};
}

inline std::string in_words(const Costs& c) {
  return c10::str(c.waits, " waits, ", c.allocations, " allocations, ", c.host_allocations, " of the host, ",
                  c.pageable, " pageable copies, ", c.to_host, " copies to the host, ", c.from_pinned, " from it");
}

/// The costs of the fourth and fifth step, whose batches begin in pinned memory.
inline Costs costs_after_third(OptimizerStep& step,
                               const std::function<std::vector<PackedBatch>(int64_t)>& batches_of) {
  std::vector<std::vector<PackedBatch>> batches;
  for (int64_t i = 0; i < 5; ++i) batches.push_back(pinned(batches_of(i)));
  for (size_t i = 0; i < 3; ++i) step.run(moved(batches[i], step.device()));
  null_device::reset_counts();
  for (size_t i = 3; i < 5; ++i) step.run(moved(batches[i], step.device()));
  return costs();
}

}  // namespace bert::testing
