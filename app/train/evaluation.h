// Figures of a model over held-out pre-training examples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "app/train/training_step.h"
#include "data/formats/shard.h"

namespace bert {

struct Evaluation {
  double mlm_loss = 0, mlm_accuracy = 0;  // mean over all masked tokens
  double nsp_loss = 0, nsp_accuracy = 0;  // mean over all examples
  double unigram_entropy = 0;             // loss of predicting the masked tokens by word frequency (UnigramModel)
  int64_t examples = 0, masked_tokens = 0;
};

/// Word frequencies: what a model that sees no context can know. Counted over the masked tokens of at most 100,000
/// examples spread evenly over the training shards; one is added to every count.
class UnigramModel {
 public:
  explicit UnigramModel(const PretrainingShards& train);
  /// -log of the token's frequency, nats.
  [[nodiscard]] double loss(int64_t id) const { return loss_[static_cast<size_t>(id)]; }

 private:
  std::vector<double> loss_;  // by id
};

/// Evaluates without dropout the first `max_examples` (0 = all), in batches that are dealt to the ranks in turn: each
/// reads its own. Every rank calls it and gets the same figures, which do not depend on the number of ranks. The
/// model's mode is afterwards what it was. `stop` is asked before each batch and may differ between ranks; when it is
/// true on one, there is no result on any.
std::optional<Evaluation> evaluate_pretraining(
    TrainingStep& step, std::shared_ptr<const PretrainingShards> shards, const UnigramModel& unigram,
    int64_t max_examples, const std::function<bool()>& stop = [] { return false; });

}  // namespace bert
