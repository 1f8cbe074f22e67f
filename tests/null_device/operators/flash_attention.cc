// LibTorch's flash attention. The structs are those of flash-attention's flash.h in LibTorch 2.11; the place of a field
// is all that matters.
#include "tests/null_device/operators/attention.h"
#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

/// Qkv_params.
struct Inputs {
  void *query, *key, *value;
  int64_t query_batch, key_batch, value_batch, query_row, key_row, value_row, query_head, key_head, value_head;
  int heads, key_heads, heads_per_key;
};

/// Flash_fwd_params.
struct Forward : Inputs {
  void *out, *out_sum;
  int64_t out_batch, out_row, out_head;
  void *probabilities, *logsumexp, *logsumexp_sum;
  int batches, queries, keys, new_keys, head_size, padded_queries, padded_keys, padded_head_size, rotary_size, tokens;
  float scale, scale_of_log2;
  int *cumulative_q, *cumulative_k, *left_padding, *used_keys, *block_mask;
  void *new_key, *new_value;
  int64_t new_strides[6];
  void *rotary_cos, *rotary_sin;
  int *cache_batches, *block_table;
  int64_t block_table_batch;
  int page_size;
  float kept;  // the probability of keeping
  uint8_t kept_in_bytes;
  float factor_of_kept, scaled_factor;
  int window_left, window_right;
  float softcap;
  at::PhiloxCudaState random;
  uint64_t* random_state;  // what forward hands to backward
  bool is_bf16, is_causal, cumulative_lengths, interleaved;
  int splits;
  void* alibi;
  int64_t alibi_batch;
  bool logsumexp_by_token, swapped;
};

/// Flash_bwd_params.
struct Backward : Forward {
  void *grad_out, *grad_query, *grad_key, *grad_value, *query_sum, *key_sum, *value_sum;
  int64_t grad_out_batch, grad_out_row, grad_out_head, grad_query_batch, grad_key_batch, grad_value_batch,
      grad_query_row, grad_key_row, grad_value_row, grad_query_head, grad_key_head, grad_value_head;
  void* delta;
  bool deterministic;
  int64_t query_sum_split;
};

bool is_understood(const Forward& p) {
  const bool plausible = p.heads > 0 && p.key_heads > 0 && p.head_size > 0 && p.head_size <= 256 && p.batches > 0 &&
                         p.kept > 0.0F && p.kept <= 1.0F && is_device(p.query) && is_device(p.key) &&
                         is_device(p.value) && is_device(p.out) && is_device(p.logsumexp) &&
                         (p.cumulative_q == nullptr || is_device(p.cumulative_q));
  if (!plausible) fault("flash attention: the kernel's arguments are not understood");
  const bool plain = p.heads == p.key_heads && p.softcap == 0.0F && !p.is_causal && p.window_left < 0 &&
                     p.window_right < 0 && p.alibi == nullptr && p.block_table == nullptr && p.used_keys == nullptr;
  if (!plain) fault("flash attention: this device has no masks, no shared keys and no paged keys");
  return plausible && plain;
}

Dropout dropout_of(const Forward& p, const std::pair<uint64_t, uint64_t>& random, int64_t batch, int64_t head) {
  if (p.kept >= 1.0F) return {};
  // The kernels draw by blocks of a head, whatever the lengths are.
  constexpr int kHeadBits = 40, kRowBits = 20;
  Dropout dropout{.p = 1.0 - p.kept, .factor = 1.0 / p.kept};
  std::tie(dropout.seed, dropout.offset) = random;
  dropout.first = static_cast<uint64_t>(batch * p.heads + head) << kHeadBits;
  dropout.row = uint64_t{1} << kRowBits;
  return dropout;
}

/// A head of a sequence in the tensors that forward and backward share.
class HeadOfBatch {
 public:
  HeadOfBatch(const Forward& p, int64_t batch, int64_t head)
      : p_(p), whole_(batch), head_(head), queries_{0, p.queries}, keys_{0, p.keys} {
    if (p.cumulative_q == nullptr) return;
    queries_ = piece_of(host_view_of(p.cumulative_q), batch, p.queries);
    keys_ = piece_of(host_view_of(p.cumulative_k), batch, p.keys);
    whole_ = 0;
  }

  [[nodiscard]] Rows query_rows(const void* tensor, int64_t of_batch, int64_t of_head, int64_t row) const {
    return rows(tensor, queries_, of_batch, of_head, row);
  }
  [[nodiscard]] Rows key_rows(const void* tensor, int64_t of_batch, int64_t of_head, int64_t row) const {
    return rows(tensor, keys_, of_batch, of_head, row);
  }

  [[nodiscard]] Head shared(int64_t batch, const std::pair<uint64_t, uint64_t>& random) const {
    Head head;
    head.type = p_.is_bf16 ? at::kBFloat16 : at::kHalf;
    head.queries = queries_.rows;
    head.keys = keys_.rows;
    head.head_size = head.value_size = p_.head_size;
    head.scale = p_.scale;
    head.dropout = dropout_of(p_, random, batch, head_);
    head.query = query_rows(p_.query, p_.query_batch, p_.query_head, p_.query_row);
    head.key = key_rows(p_.key, p_.key_batch, p_.key_head, p_.key_row);
    head.value = key_rows(p_.value, p_.value_batch, p_.value_head, p_.value_row);
    head.out = query_rows(p_.out, p_.out_batch, p_.out_head, p_.out_row);
    head.logsumexp =
        static_cast<float*>(host_view(p_.logsumexp)) +
        (p_.logsumexp_by_token ? head_ * p_.tokens + queries_.begin : (batch * p_.heads + head_) * p_.queries);
    return head;
  }

 private:
  [[nodiscard]] Rows rows(const void* tensor, const Piece& piece, int64_t of_batch, int64_t of_head,
                          int64_t row) const {
    const int64_t element = whole_ * of_batch + head_ * of_head + piece.begin * row;
    return {static_cast<char*>(host_view(tensor)) + element * 2, row};  // of 2 bytes
  }

  const Forward& p_;
  int64_t whole_;  // the batch, or 0 where lengths are cumulative
  int64_t head_;
  Piece queries_, keys_;
};

void run_forward(const Forward& p) {
  if (!is_understood(p)) return;
  std::pair<uint64_t, uint64_t> random;
  if (p.kept < 1.0F) {
    random = unpacked(p.random);
    uint64_t* const state = host_view_of(p.random_state);
    state[0] = random.first;
    state[1] = random.second;
  }
  for_each_head(p.batches, p.heads,
                [&](int64_t batch, int64_t h) { attention_forward(HeadOfBatch(p, batch, h).shared(batch, random)); });
}

void run_backward(const Backward& p) {
  if (!is_understood(p)) return;
  std::pair<uint64_t, uint64_t> random;
  if (p.kept < 1.0F) {
    const uint64_t* const state = host_view_of(p.random_state);
    random = {state[0], state[1]};
  }
  for_each_head(p.batches, p.heads, [&](int64_t batch, int64_t h) {
    const HeadOfBatch at(p, batch, h);
    Head head = at.shared(batch, random);
    head.grad_out = at.query_rows(p.grad_out, p.grad_out_batch, p.grad_out_head, p.grad_out_row);
    head.grad_query = at.query_rows(p.grad_query, p.grad_query_batch, p.grad_query_head, p.grad_query_row);
    head.grad_key = at.key_rows(p.grad_key, p.grad_key_batch, p.grad_key_head, p.grad_key_row);
    head.grad_value = at.key_rows(p.grad_value, p.grad_value_batch, p.grad_value_head, p.grad_value_row);
    attention_backward(head);
  });
}

/// The accesses that the kernel itself knows. The operators (watch_operators()) note its tensors and know their sizes.
std::vector<Access> accesses_of_kernel(const Forward& p, bool backward) {
  std::vector<Access> accesses;
  for (const int* lengths : {p.cumulative_q, p.cumulative_k}) {
    if (lengths != nullptr) accesses.push_back({lengths, (static_cast<size_t>(p.batches) + 1) * sizeof(int), false});
  }
  if (p.kept < 1.0F) {
    if (!backward) add_accesses(accesses, p.random);
    accesses.push_back({p.random_state, 2 * sizeof(uint64_t), !backward});
  }
  return accesses;
}

}  // namespace

Work flash_attention_kernel(const std::string& mangled_name, void** arguments) {
  const auto has = [&](const char* text) { return mangled_name.find(text) != std::string::npos; };
  Work work;
  if (has("flash_fwd_kernel") || has("flash_fwd_splitkv_kernel")) {
    const auto p = *static_cast<const Forward*>(arguments[0]);
    work.name = "flash attention, forward";
    work.accesses = accesses_of_kernel(p, /*backward=*/false);
    work.run = [p] { run_forward(p); };
  } else if (has("flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel")) {
    const auto p = *static_cast<const Backward*>(arguments[0]);
    work.name = "flash attention, backward";
    work.accesses = accesses_of_kernel(p, /*backward=*/true);
    work.run = [p] { run_backward(p); };
  } else if (has("flash_fwd_splitkv_combine_kernel") || has("flash_bwd_dot_do_o_kernel") ||
             has("flash_bwd_convert_dq_kernel")) {
    work.name = "flash attention, parts";  // the others do their work
    work.run = [] {};
  }
  return work;
}

}  // namespace null_device
