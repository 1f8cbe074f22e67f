// Figures of a model over held-out pre-training examples.
#pragma once

#include <cstdint>
#include <memory>

#include "app/training_step.h"
#include "data/shard.h"

namespace bert {

struct Evaluation {
  double mlm_loss = 0, mlm_accuracy = 0;  // mean over all masked tokens
  double nsp_loss = 0, nsp_accuracy = 0;  // mean over all examples
  double unigram_entropy = 0;             // entropy of the masked tokens: the best that word frequency alone can do
  int64_t examples = 0, masked_tokens = 0;
};

/// Evaluates without dropout, in order, at most `max_examples` (0 = all). The model is in training mode again
/// afterwards.
Evaluation evaluate_pretraining(TrainingStep& step, std::shared_ptr<const PretrainingShards> shards,
                                int64_t max_examples);

}  // namespace bert
