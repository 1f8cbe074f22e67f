// Floating-point operations of a model's matrix products.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace bert {

/// Training FLOPs of batches, counted as 3 times the forward's matrix products (backward = 2 forwards); the MLM head on
/// masked tokens only. Source: recipe of the PaLM paper's appendix B, with attention over real lengths.
class FlopCounter {
 public:
  explicit FlopCounter(const BertConfig& config) : config_(config) {}
  /// One sequence of `length` tokens. Forward only.
  [[nodiscard]] double forward_of_sequence(int64_t length) const;
  [[nodiscard]] double forward_of_heads(int64_t masked, int64_t sequences) const;

 private:
  BertConfig config_;
};

}  // namespace bert
