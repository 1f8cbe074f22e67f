#include "app/evaluation.h"

#include <torch/torch.h>

#include <cmath>
#include <vector>

#include "data/dataloader.h"

namespace bert {
namespace {

double number_correct(const torch::Tensor& logits, const torch::Tensor& labels) {
  return logits.argmax(-1).eq(labels).sum().item<double>();
}

}  // namespace

UnigramModel::UnigramModel(const PretrainingShards& train) {
  constexpr int64_t kMostExamples = 100000;
  std::vector<double> counts(static_cast<size_t>(train.vocab_size()), 1.0);
  auto total = static_cast<double>(counts.size());
  std::vector<int64_t> ids;
  const int64_t stride = train.size() / kMostExamples + 1;
  for (int64_t row = 0; row < train.size(); row += stride) {
    const ShardRow example = train.row(row);
    ids.resize(static_cast<size_t>(example.num_masked));
    example.copy_masked_ids(ids.data());
    for (const int64_t id : ids) ++counts[static_cast<size_t>(id)];
    total += static_cast<double>(ids.size());
  }
  for (const double count : counts) loss_.push_back(std::log(total / count));
}

Evaluation evaluate_pretraining(TrainingStep& step, std::shared_ptr<const PretrainingShards> shards,
                                const UnigramModel& unigram, int64_t max_examples) {
  constexpr int64_t kBatch = 32;  // sequences; any number gives the same figures
  const int64_t vocab_size = shards->vocab_size();
  const int64_t examples = max_examples > 0 ? std::min(max_examples, shards->size()) : shards->size();
  DataLoaderConfig config;
  config.micro_batch_size = kBatch;
  config.shuffle = false;
  config.repeat = false;
  PretrainingDataLoader loader(std::move(shards), config);

  Evaluation result;
  const torch::NoGradGuard no_grad;
  step.model->eval();
  while (result.examples < examples && !loader.exhausted()) {
    const PackedBatch host = loader.next();
    const PackedBatch batch = to_device(host, step.device());
    const PretrainingOutput output = step.forward(batch);
    const PretrainingLoss loss = pretraining_loss(output, batch, vocab_size);
    const auto masked = static_cast<double>(batch.num_masked()), sequences = static_cast<double>(batch.num_sequences());
    result.mlm_loss += loss.mlm.item<double>() * masked;
    result.nsp_loss += loss.nsp.item<double>() * sequences;
    result.mlm_accuracy += number_correct(output.mlm_logits, batch.masked_ids);
    result.nsp_accuracy += number_correct(output.nsp_logits, batch.next_sentence_labels);
    result.masked_tokens += batch.num_masked();
    result.examples += batch.num_sequences();
    const auto* ids = host.masked_ids.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < host.num_masked(); ++i) result.unigram_entropy += unigram.loss(ids[i]);
  }
  step.model->train();
  const auto tokens = static_cast<double>(std::max<int64_t>(1, result.masked_tokens));
  const auto sequences = static_cast<double>(std::max<int64_t>(1, result.examples));
  result.mlm_loss /= tokens;
  result.mlm_accuracy /= tokens;
  result.nsp_loss /= sequences;
  result.nsp_accuracy /= sequences;
  result.unigram_entropy /= tokens;
  return result;
}

}  // namespace bert
