// Evaluation of a model on held-out pre-training examples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "app/train/step/training_step.h"
#include "data/formats/shard.h"
#include "data/loader/collate.h"

namespace bert {

struct Evaluation {
  double mlm_loss = 0, mlm_accuracy = 0;    // mean over all masked tokens
  double pair_loss = 0, pair_accuracy = 0;  // mean over all examples; 0 without a sentence-pair head
  double unigram_entropy = 0;               // loss of predicting the masked tokens by word frequency (UnigramModel)
  int64_t examples = 0, masked_tokens = 0;
};

/// The loss of a model that knows word frequencies alone. Frequencies are counted over the masked tokens of at most
/// 100,000 examples, spread evenly over the training shards; each count starts at one. In examples that store no masks
/// every token counts but the first ([CLS]). Damaged rows are left out if `skip_damaged`, otherwise they throw DataError.
class UnigramModel {
 public:
  explicit UnigramModel(const PretrainingShards& train, bool skip_damaged = false);
  /// Negative logarithm of the frequency of token `id`, in nats.
  [[nodiscard]] double loss(int64_t id) const { return loss_[static_cast<size_t>(id)]; }

 private:
  std::vector<double> loss_;  // of each id
};

/// Evaluates the first `max_examples` examples (0: all) without dropout. Batches are dealt to the ranks in turn, and
/// each rank reads its own batches only. Every rank must call it and gets the same figures; they do not depend on the
/// number of ranks. The mode of the model (training or evaluation) is restored. `stop` is asked before each batch and
/// may differ between ranks. If it is true on one rank, no rank gets a result. `masking` draws the masks of shards that
/// store none, the same in every evaluation.
std::optional<Evaluation> evaluate_pretraining(
    TrainingStep& step, const std::shared_ptr<const PretrainingShards>& shards, const UnigramModel& unigram,
    int64_t max_examples, const std::function<bool()>& stop = [] { return false; },
    std::optional<DynamicMasking> masking = {});

}  // namespace bert
