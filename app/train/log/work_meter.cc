#include "app/train/log/work_meter.h"

#include <torch/types.h>

namespace bert {

WorkMeter::WorkMeter(const BertConfig& model, bool pooler, const std::vector<std::string>& sources)
    : flop_counter_(model, pooler) {
  for (const std::string& name : sources) sources_.push_back({name});
}

void WorkMeter::add(const GlobalStep& step) {
  for (const PackedBatch& batch : step.micro_batches) {
    const auto* ends = batch.cu_seqlens.const_data_ptr<int32_t>();
    const int64_t sequences = batch.num_sequences() - batch.padding.sequences,
                  masked = batch.num_masked() - batch.padding.masked;
    for (int64_t row = 0; row < sequences; ++row)
      flops_ += 3 * flop_counter_.forward_of_sequence(ends[row + 1] - ends[row]);
    flops_ += 3 * flop_counter_.forward_of_heads(masked, sequences);
    if (sources_.empty()) continue;
    const auto* sources = batch.masked_sources.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < masked; ++i) ++sources_[static_cast<size_t>(sources[i])].masked_tokens;
  }
  sequences_ += std::ssize(step.places);
  tokens_ += step.num_tokens();
  capacity_ += step.capacity;
  waited_ += step.seconds_waited;
  corrupted_ += step.damaged.sequences;
  if (sources_.empty()) return;
  for (const ExampleOrder::Place& place : step.places) ++sources_[static_cast<size_t>(place.source)].examples;
}

WorkMeter::Work WorkMeter::sum(const OptimizerStep& group) const {
  // Every rank fills in its own row, so the sum over ranks is exact.
  enum Column : int64_t { kSequences, kTokens, kWaited, kFlops, kCapacity, kColumns };
  const auto sources = std::ssize(sources_);
  torch::Tensor table = torch::zeros({group.world_size(), kColumns + 2 * sources}, torch::kDouble);
  auto* row = table[group.rank()].mutable_data_ptr<double>();
  row[kSequences] = static_cast<double>(sequences_);
  row[kTokens] = static_cast<double>(tokens_);
  row[kWaited] = waited_;
  row[kFlops] = flops_;
  row[kCapacity] = static_cast<double>(capacity_);
  for (int64_t i = 0; i < sources; ++i) {
    row[kColumns + i] = sources_[static_cast<size_t>(i)].examples;
    row[kColumns + sources + i] = sources_[static_cast<size_t>(i)].masked_tokens;
  }
  table = group.sum_over_ranks(table);
  const torch::Tensor sums = table.sum(0);
  const auto* sum = sums.const_data_ptr<double>();
  Work work{.sequences = sum[kSequences],
            .tokens = sum[kTokens],
            .least_tokens = table.select(1, kTokens).min().item<double>(),
            .most_tokens = table.select(1, kTokens).max().item<double>(),
            .flops = sum[kFlops],
            .capacity = sum[kCapacity],
            .most_seconds_waited = table.select(1, kWaited).max().item<double>(),
            .corrupted = corrupted_,
            .sources = sources_};
  for (int64_t i = 0; i < sources; ++i) {
    work.sources[static_cast<size_t>(i)].examples = sum[kColumns + i];
    work.sources[static_cast<size_t>(i)].masked_tokens = sum[kColumns + sources + i];
  }
  return work;
}

void WorkMeter::reset() {
  sequences_ = tokens_ = capacity_ = corrupted_ = 0;
  flops_ = waited_ = 0;
  for (SourceWork& source : sources_) source.examples = source.masked_tokens = 0;
}

}  // namespace bert
