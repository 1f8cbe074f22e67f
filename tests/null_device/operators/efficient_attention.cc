// LibTorch's memory-efficient attention. The structs are those of LibTorch 2.11's headers kernel_forward.h and
// kernel_backward.h (ATen/native/transformers/cuda/mem_eff_attention); the place of a field is all that matters.
#include <algorithm>
#include <limits>
#include <optional>

#include "tests/null_device/operators/attention.h"
#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

constexpr int64_t kLogsumexpStep = 32;  // kAlignLSE

/// AttentionKernel::Params.
struct Forward {
  const void *query, *key, *value, *bias;
  const int32_t *cumulative_q, *cumulative_k, *lengths_k;
  uint32_t causal_diagonal_offset;
  void *out, *out_sum;
  float* logsumexp;
  int32_t window_size;
  float scale;
  int32_t head_size, value_size, queries, keys, all_keys;
  uint8_t mask_type;
  int32_t query_row, key_row, value_row, bias_row, out_row, query_head, key_head, value_head;
  int64_t bias_head, query_batch, key_batch, value_batch, bias_batch;
  int32_t batches, heads;
  bool use_dropout;
  unsigned long long dropout_place;  // of the block
  float dropout;
  at::PhiloxCudaState random;
  int64_t *offset, *seed;
};

/// AttentionBackwardKernel::Params.
struct Backward {
  const void *query, *key, *value, *bias;
  const float* logsumexp;
  const void *out, *grad_out;
  float* delta;
  const int32_t *cumulative_q, *cumulative_k;
  void *grad_query, *grad_key, *grad_value, *grad_bias, *workspace, *workspace_value, *workspace_query;
  int32_t window_size;
  float scale;
  int32_t head_size, value_size, queries, keys, heads;
  uint8_t mask_type;
  int64_t query_row, key_row, value_row, bias_row, grad_out_row, grad_bias_row;
  int8_t gradients_in_a_row;  // 3 if the gradients of query, key and value share one tensor
  at::PhiloxCudaState random;
  unsigned long long dropout_place;
  float dropout;
  int64_t out_head;
  int32_t query_head, key_head, value_head;
  int64_t bias_head, out_batch, query_batch, key_batch, value_batch, bias_batch, logsumexp_batch, logsumexp_head,
      delta_batch, delta_head;
  int32_t batches;
  int16_t splits;
  int64_t grad_out_batch, grad_query_batch, grad_key_batch, grad_value_batch, grad_bias_batch, grad_out_head,
      grad_query_head, grad_key_head, grad_value_head, grad_bias_head;
};

/// Rows of a head that begins at an element of a tensor.
Rows rows_at(at::ScalarType type, const void* tensor, int64_t element, int64_t row) {
  return {static_cast<char*>(host_view(tensor)) + element * static_cast<int64_t>(c10::elementSize(type)), row};
}

/// No data if there is no bias.
template <class Parameters>
Rows bias_of(at::ScalarType type, const Parameters& p, int64_t batch, int64_t head) {
  if (p.bias == nullptr) return {};
  return rows_at(type, p.bias, batch * p.bias_batch + head * p.bias_head, p.bias_row);
}

/// As the kernels number the places: by the longest lengths, and within a head by its own number of keys. With
/// cumulative lengths LibTorch 2.11 gives backward the longest number of keys, and forward 0. So all heads of forward
/// drop the same places, and backward drops others, except in the first head.
template <class Parameters>
Dropout dropout_of(const Parameters& p, const std::pair<uint64_t, uint64_t>& seed_and_offset, int64_t batch,
                   int64_t head, int64_t keys) {
  if (p.dropout <= 0.0F) return {};
  Dropout dropout{.p = p.dropout, .factor = 1.0 / (1.0 - p.dropout)};
  std::tie(dropout.seed, dropout.offset) = seed_and_offset;
  const int64_t places = static_cast<int64_t>(p.queries) * p.keys;
  dropout.first = static_cast<uint64_t>((batch * p.heads + head) * places);
  dropout.row = static_cast<uint64_t>(keys);
  return dropout;
}

template <class Parameters>
bool is_understood(const Parameters& p, const void* result) {
  const bool plausible = p.batches > 0 && p.heads > 0 && p.head_size > 0 && p.value_size > 0 && p.dropout >= 0.0F &&
                         p.dropout < 1.0F && is_device(p.query) && is_device(result) &&
                         (p.cumulative_q == nullptr) == (p.cumulative_k == nullptr);
  if (!plausible) fault("memory-efficient attention: the kernel's arguments are not understood");
  const bool plain = p.mask_type == 0 && p.window_size == 0;
  if (!plain) fault("memory-efficient attention: this device has no causal mask and no window");
  return plausible && plain;
}

void run_forward(at::ScalarType type, const Forward& p) {
  const auto random = p.use_dropout ? unpacked(p.random) : std::pair<uint64_t, uint64_t>();
  if (p.use_dropout && p.random.captured_) {
    *host_view_of(p.seed) = static_cast<int64_t>(random.first);
    *host_view_of(p.offset) = static_cast<int64_t>(random.second);
  }
  const int64_t padded = (p.queries + kLogsumexpStep - 1) / kLogsumexpStep * kLogsumexpStep;
  for_each_head(p.batches, p.heads, [&](int64_t batch, int64_t h) {
    Piece q{0, p.queries}, k{0, p.keys};
    int64_t whole = batch;  // batches have strides of their own only without cumulative lengths
    if (p.cumulative_q != nullptr) {
      q = piece_of(host_view_of(p.cumulative_q), batch, p.queries);
      k = piece_of(host_view_of(p.cumulative_k), batch, INT32_MAX);
      if (p.lengths_k != nullptr) k.rows = host_view_of(p.lengths_k)[batch];
      whole = 0;
    }
    Head head{.type = type,
              .queries = q.rows,
              .keys = k.rows,
              .head_size = p.head_size,
              .value_size = p.value_size,
              .scale = p.scale,
              .dropout = {},
              .query = {},
              .key = {},
              .value = {},
              .out = {},
              .bias = bias_of(type, p, batch, h),
              .grad_out = {},
              .grad_query = {},
              .grad_key = {},
              .grad_value = {}};
    if (p.use_dropout) head.dropout = dropout_of(p, random, batch, h, k.rows);
    head.query = rows_at(type, p.query, whole * p.query_batch + q.begin * p.query_row + h * p.query_head, p.query_row);
    head.key = rows_at(type, p.key, whole * p.key_batch + k.begin * p.key_row + h * p.key_head, p.key_row);
    head.value = rows_at(type, p.value, whole * p.value_batch + k.begin * p.value_row + h * p.value_head, p.value_row);
    head.out = rows_at(type, p.out, (whole * p.queries + q.begin) * p.out_row + h * p.value_size, p.out_row);
    if (p.logsumexp != nullptr) {
      head.logsumexp = host_view_of(p.logsumexp) + (batch * p.heads + h) * padded;
      const int64_t own = (q.rows + kLogsumexpStep - 1) / kLogsumexpStep * kLogsumexpStep;
      std::fill(head.logsumexp + q.rows, head.logsumexp + own, std::numeric_limits<float>::infinity());
    }
    attention_forward(head);
  });
}

void run_backward(at::ScalarType type, const Backward& p) {
  if (p.grad_bias != nullptr) fault("memory-efficient attention: this device makes no gradient of the bias");
  const auto random = p.dropout > 0.0F ? unpacked(p.random) : std::pair<uint64_t, uint64_t>();
  const int64_t out_row = static_cast<int64_t>(p.value_size) * p.heads;
  const int64_t grad_row = static_cast<int64_t>(p.gradients_in_a_row) * p.heads * p.head_size;
  const int64_t grad_value_row = static_cast<int64_t>(p.gradients_in_a_row) * p.heads * p.value_size;
  for_each_head(p.batches, p.heads, [&](int64_t batch, int64_t h) {
    Piece q{0, p.queries}, k{0, p.keys};
    int64_t whole = batch;
    if (p.cumulative_q != nullptr) {
      q = piece_of(host_view_of(p.cumulative_q), batch, p.queries);
      k = piece_of(host_view_of(p.cumulative_k), batch, p.keys);
      whole = 0;
    }
    const auto rows = [&](const void* tensor, const Piece& piece, int64_t of_batch, int64_t of_head, int64_t row) {
      return rows_at(type, tensor, whole * of_batch + h * of_head + piece.begin * row, row);
    };
    attention_backward(
        {.type = type,
         .queries = q.rows,
         .keys = k.rows,
         .head_size = p.head_size,
         .value_size = p.value_size,
         .scale = p.scale,
         .dropout = dropout_of(p, random, batch, h, k.rows),
         .query = rows(p.query, q, p.query_batch, p.query_head, p.query_row),
         .key = rows(p.key, k, p.key_batch, p.key_head, p.key_row),
         .value = rows(p.value, k, p.value_batch, p.value_head, p.value_row),
         .out = rows(p.out, q, p.out_batch, p.out_head, out_row),
         .bias = bias_of(type, p, batch, h),
         .logsumexp = const_cast<float*>(host_view_of(p.logsumexp)) + batch * p.logsumexp_batch + h * p.logsumexp_head,
         .grad_out = rows(p.grad_out, q, p.grad_out_batch, p.grad_out_head, p.grad_out_row),
         .grad_query = rows(p.grad_query, q, p.grad_query_batch, p.grad_query_head, grad_row),
         .grad_key = rows(p.grad_key, k, p.grad_key_batch, p.grad_key_head, grad_row),
         .grad_value = rows(p.grad_value, k, p.grad_value_batch, p.grad_value_head, grad_value_row)});
  });
}

/// The accesses that the kernel itself knows. The operators (watch_operators()) note its tensors and know their sizes.
template <class Parameters>
std::vector<Access> accesses_of_kernel(const Parameters& p, bool with_dropout) {
  std::vector<Access> accesses;
  for (const int32_t* lengths : {p.cumulative_q, p.cumulative_k}) {
    if (lengths != nullptr)
      accesses.push_back({lengths, (static_cast<size_t>(p.batches) + 1) * sizeof(int32_t), false});
  }
  if (with_dropout) add_accesses(accesses, p.random);
  return accesses;
}

}  // namespace

Work efficient_attention_kernel(const std::string& mangled_name, void** arguments) {
  const auto has = [&](const char* text) { return mangled_name.find(text) != std::string::npos; };
  const at::ScalarType type = has("_bf16_") ? at::kBFloat16 : has("_f16_") ? at::kHalf : at::kFloat;
  Work work;
  if (has("fmha_cutlassF_")) {
    const auto p = *static_cast<const Forward*>(arguments[0]);
    work.name = "memory-efficient attention, forward";
    work.accesses = accesses_of_kernel(p, p.use_dropout);
    if (p.use_dropout && p.random.captured_) {
      work.accesses.push_back({p.seed, sizeof(int64_t), true});
      work.accesses.push_back({p.offset, sizeof(int64_t), true});
    }
    work.run = [type, p] {
      if (is_understood(p, p.out)) run_forward(type, p);
    };
  } else if (has("fmha_cutlassB_")) {
    const auto p = *static_cast<const Backward*>(arguments[0]);
    work.name = "memory-efficient attention, backward";
    work.accesses = accesses_of_kernel(p, p.dropout > 0.0F);
    work.run = [type, p] {
      if (is_understood(p, p.grad_query)) run_backward(type, p);
    };
  }
  return work;
}

}  // namespace null_device
