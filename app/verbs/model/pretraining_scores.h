// The quality of a model's predictions of masked tokens and pairs of segments.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "app/inference/pretrained.h"
#include "app/verbs/model/pretraining_examples.h"

namespace bert {

/// Sums over predictions.
struct PredictionSums {
  double loss = 0;  // nats
  int64_t correct = 0, count = 0;

  void add(double one_loss, bool right) {
    loss += one_loss;
    correct += right ? 1 : 0;
    ++count;
  }
  [[nodiscard]] double mean_loss() const { return loss / static_cast<double>(count); }
  [[nodiscard]] double accuracy() const { return static_cast<double>(correct) / static_cast<double>(count); }
};

/// Words by the number of times that they occur in the examples: the least number of each band.
inline constexpr std::array<int64_t, 5> kFrequencyBands = {1, 2, 10, 100, 1000};

struct PretrainingScores {
  PredictionSums masked;                                            // tokens
  std::array<PredictionSums, kFrequencyBands.size()> by_frequency;  // of the word of the token
  std::vector<PredictionSums> by_source;
  PredictionSums pairs;        // none without a head for the objective of the examples
  PredictionSums pseudo;       // tokens, each masked alone; [UNK] counts as any token
  int64_t pseudo_words = 0;    // of those tokens
  int64_t unknown_tokens = 0;  // [UNK] in all examples
};

/// Evaluates in fp32 on `device`, without dropout. A softmax is over the tokens of the vocabulary: rows of the model
/// beyond it are padding. `pseudo_examples` of the examples, spread evenly, are also masked token by token. `progress`
/// gets the finished share. Throws DataError for a model without a masked-token head, without a tokenizer, or with
/// fewer positions than an example has.
PretrainingScores score_pretraining(const Pretrained& pretrained, const EvaluatedExamples& examples, size_t sources,
                                    int64_t pseudo_examples, c10::Device device,
                                    const std::function<void(double share)>& progress);

}  // namespace bert
