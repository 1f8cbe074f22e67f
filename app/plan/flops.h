// Floating-point operations of a model's matrix products.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace bert {

/// FLOPs of the forward's matrix products, with attention over the real lengths and the MLM head on masked tokens only.
/// A training step has 3 times as many: backward counts as two forwards. Source: PaLM (Chowdhery et al. 2022), appendix
/// B.
class FlopCounter {
 public:
  explicit FlopCounter(const BertConfig& config, bool sentence_pair_head = true)
      : config_(config), sentence_pair_head_(sentence_pair_head) {}
  /// The products of one encoder layer with its weights, for `tokens` tokens.
  [[nodiscard]] double forward_of_weights(double tokens) const;
  /// Encoder, one sequence of `length` tokens.
  [[nodiscard]] double forward_of_sequence(int64_t length) const;
  /// The masked-token head, and the pooler with the sentence-pair head.
  [[nodiscard]] double forward_of_heads(int64_t masked, int64_t sequences) const;

 private:
  BertConfig config_;
  bool sentence_pair_head_;
};

}  // namespace bert
