#include "app/train/step/evaluation.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "app/plan/memory.h"
#include "data/io/error.h"
#include "data/loader/single_pass_loader.h"
#include "model/evaluation_guard.h"

namespace bert {
namespace {

double number_correct(const torch::Tensor& logits, const torch::Tensor& labels) {
  return logits.argmax(-1).eq(labels).sum().item<double>();
}

}  // namespace

UnigramModel::UnigramModel(const PretrainingShards& train, bool skip_damaged) {
  constexpr int64_t kMostExamples = 100000;
  std::vector<double> counts(static_cast<size_t>(train.vocab_size()), 1.0);
  auto total = static_cast<double>(counts.size());
  std::vector<int64_t> ids;
  const int64_t stride = train.size() / kMostExamples + 1;
  for (int64_t row = 0; row < train.size(); row += stride) {
    ShardRow example;
    try {
      example = train.row(row);
    } catch (const DataError&) {
      if (!skip_damaged) throw;
      continue;
    }
    if (example.num_masked > 0) {
      ids.resize(static_cast<size_t>(example.num_masked));
      example.copy_masked_ids(ids.data());
    } else {
      ids.resize(static_cast<size_t>(example.length));
      example.copy_input_ids(ids.data());
      ids.erase(ids.begin());
    }
    for (const int64_t id : ids) ++counts[static_cast<size_t>(id)];
    total += static_cast<double>(ids.size());
  }
  for (const double count : counts) loss_.push_back(std::log(total / count));
}

std::optional<Evaluation> evaluate_pretraining(TrainingStep& step,
                                               const std::shared_ptr<const PretrainingShards>& shards,
                                               const UnigramModel& unigram, int64_t max_examples,
                                               const std::function<bool()>& stop,
                                               std::optional<DynamicMasking> masking) {
  const int64_t vocab_size = shards->vocab_size();
  const int64_t examples = max_examples > 0 ? std::min(max_examples, shards->size()) : shards->size();
  SinglePassLoader loader(shards, {.batch_size = kEvaluationBatch,
                                   .max_sequences = examples,
                                   .rank = step.rank(),
                                   .world_size = step.world_size(),
                                   .masking = std::move(masking)});

  // One row for each batch. One rank fills a row in, so the sum over ranks is exact. The rows are added up in order.
  enum Column : int64_t { kMlmLoss, kPairLoss, kMlmCorrect, kPairCorrect, kUnigram, kMasked, kSequences, kColumns };
  const int64_t batches = (examples + kEvaluationBatch - 1) / kEvaluationBatch;
  torch::Tensor table = torch::zeros({batches, kColumns}, torch::kDouble);
  const torch::NoGradGuard no_grad;
  const EvaluationGuard evaluation(*step.model);
  for (int64_t i = step.rank(); i < batches && !stop(); i += step.world_size()) {
    const PackedBatch host = loader.next().value();
    const PackedBatch batch = host.to(step.device());
    const PretrainingOutput output = step.forward(batch);
    const PretrainingLoss loss = pretraining_loss(output, batch, vocab_size);
    const auto masked = static_cast<double>(batch.num_masked()), sequences = static_cast<double>(batch.num_sequences());
    double* row = table.mutable_data_ptr<double>() + i * kColumns;
    row[kMlmLoss] = loss.mlm.item<double>() * masked;
    row[kPairLoss] = loss.nsp.item<double>() * sequences;
    row[kMlmCorrect] = number_correct(output.mlm_logits.narrow(1, 0, vocab_size), batch.masked_ids);
    if (output.nsp_logits.defined()) {
      row[kPairCorrect] = number_correct(output.nsp_logits, batch.next_sentence_labels);
    }
    row[kMasked] = masked;
    row[kSequences] = sequences;
    const auto* ids = host.masked_ids.const_data_ptr<int64_t>();
    for (int64_t id = 0; id < host.num_masked(); ++id) row[kUnigram] += unigram.loss(ids[id]);
  }
  table = step.sum_over_ranks(table);
  std::array<double, kColumns> sums{};
  for (int64_t i = 0; i < batches; ++i) {
    for (int64_t column = 0; column < kColumns; ++column)
      sums[static_cast<size_t>(column)] += table.const_data_ptr<double>()[i * kColumns + column];
  }
  if (static_cast<int64_t>(sums[kSequences]) < examples) return std::nullopt;  // a rank has stopped
  const double tokens = std::max(1.0, sums[kMasked]), sequences = std::max(1.0, sums[kSequences]);
  Evaluation result;
  result.mlm_loss = sums[kMlmLoss] / tokens;
  result.mlm_accuracy = sums[kMlmCorrect] / tokens;
  result.pair_loss = sums[kPairLoss] / sequences;
  result.pair_accuracy = sums[kPairCorrect] / sequences;
  result.unigram_entropy = sums[kUnigram] / tokens;
  result.examples = static_cast<int64_t>(sums[kSequences]);
  result.masked_tokens = static_cast<int64_t>(sums[kMasked]);
  return result;
}

}  // namespace bert
