// The arithmetic of attention, on the host: softmax(scale * query key^T + bias) value for one head of one sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace null_device {

/// The probabilities of a head that are dropped. The number of place (query, key) is first + query * row + key. A place
/// with the same number, seed and offset is always dropped or always kept.
struct Dropout {
  double p = 0.0;       // the probability of dropping
  double factor = 1.0;  // of what is kept
  uint64_t seed = 0;
  uint64_t offset = 0;  // added to the numbers
  uint64_t first = 0, row = 0;

  [[nodiscard]] bool keeps(int64_t query, int64_t key) const;
  /// [queries, keys] of 0 and factor, or undefined if nothing is dropped.
  [[nodiscard]] at::Tensor mask(int64_t queries, int64_t keys) const;
};

/// Rows of one head in memory of the host.
struct Rows {
  void* data = nullptr;
  int64_t stride = 0;  // elements from a row to the next
};

struct Head {
  at::ScalarType type = at::kFloat;  // of all rows
  int64_t queries = 0, keys = 0, head_size = 0, value_size = 0;
  double scale = 1.0;
  Dropout dropout;
  Rows query, key, value, out;
  Rows bias = {};              // [queries, keys], or no data
  float* logsumexp = nullptr;  // [queries], or null
  int64_t logsumexp_stride = 1;
  // only for backward
  Rows grad_out, grad_query, grad_key, grad_value;
};

/// Writes out and, if it is not null, logsumexp. Sums are fp32.
void attention_forward(const Head& head);
/// Writes the three gradients from the other rows and logsumexp.
void attention_backward(const Head& head);

/// Calls `run` for every head of every sequence, by several threads.
void for_each_head(int64_t sequences, int64_t heads, const std::function<void(int64_t sequence, int64_t head)>& run);

/// The row at which a sequence begins, and the number of its rows.
struct Piece {
  int64_t begin = 0, rows = 0;
};
/// Of the host's view of cumulative lengths. A sequence longer than `longest` is a fault.
Piece piece_of(const int32_t* cumulative, int64_t sequence, int64_t longest);

}  // namespace null_device
