#include "app/plan/flops.h"

namespace bert {

double FlopCounter::forward_of_weights(double tokens) const {
  const auto h = static_cast<double>(config_.hidden_size), i = static_cast<double>(config_.intermediate_size);
  return (8 * h * h + 4 * h * i) * tokens;
}

double FlopCounter::forward_of_sequence(int64_t length) const {
  const auto h = static_cast<double>(config_.hidden_size), s = static_cast<double>(length);
  return static_cast<double>(config_.num_hidden_layers) * (forward_of_weights(s) + 4 * h * s * s);
}

double FlopCounter::forward_of_heads(int64_t masked, int64_t sequences) const {
  const auto h = static_cast<double>(config_.hidden_size), v = static_cast<double>(config_.vocab_size);
  const double of_sequence = sentence_pair_head_ ? 2 * h * h + 4 * h : 0;
  return static_cast<double>(masked) * (2 * h * h + 2 * h * v) + static_cast<double>(sequences) * of_sequence;
}

}  // namespace bert
