#include "cuda_ext/dispatch/checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "cuda_ext/simd/kernels.h"

namespace bert::checks {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// One tensor: dense, of this shape (-1: any), contiguous, on the device of `like`.
void check_tensor(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined; a tensor of shape ", shape, " is expected");
  TORCH_CHECK(tensor.layout() == at::kStrided, op, ": ", name, " must be a dense tensor, got layout ", tensor.layout());
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || tensor.size(static_cast<int64_t>(i)) == shape[i];
  }
  TORCH_CHECK(fits, op, ": ", name, " must be ", shape, " (-1: any), got ", tensor.sizes());
  TORCH_CHECK(tensor.is_contiguous(), op, ": ", name, " must be contiguous, got strides ", tensor.strides(),
              " of shape ", tensor.sizes(), ". Call contiguous() first.");
  TORCH_CHECK(tensor.device() == like.device(), op, ": ", name, " must be on ", like.device(), ", got ",
              tensor.device());
}

/// Floating point, of any dtype.
void check(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like) {
  check_tensor(op, name, tensor, shape, like);
  TORCH_CHECK(tensor.is_floating_point(), op, ": ", name, " must be a floating-point tensor, got ",
              tensor.scalar_type());
}

/// Of a dtype that follows from that of `like`.
void check_type(const char* op, const char* name, const Tensor& tensor, at::ScalarType type, const char* why,
                const char* remedy = "") {
  TORCH_CHECK(tensor.scalar_type() == type, op, ": ", name, " must be ", type, ", ", why, ", got ",
              tensor.scalar_type(), remedy);
}

/// What a forward left for its backward: mean, rstd or logsumexp of activations like these.
void check_statistic(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape,
                     const Tensor& like) {
  check_tensor(op, name, tensor, shape, like);
  check_type(op, name, tensor, composite::accumulation_type(like), "as forward returns it");
}

void check_integers(const char* op, const char* name, const Tensor& tensor, int64_t size, at::ScalarType type,
                    const Tensor& like) {
  TORCH_CHECK(
      tensor.defined() && tensor.dim() == 1 && (size < 0 || tensor.size(0) == size) && tensor.scalar_type() == type, op,
      ": ", name, " must be [", size, "] ", type, ", got ",
      tensor.defined() ? c10::str(tensor.sizes(), " ", tensor.scalar_type()) : "an undefined tensor");
  check_tensor(op, name, tensor, {size}, like);
}

/// Ids on the CPU lie in [0, high).
void check_range(const char* op, const char* name, const Tensor& ids, int64_t high) {
  if (!ids.is_cpu()) return;
  const int64_t *const id = ids.const_data_ptr<int64_t>(), *const end = id + ids.numel();
  const auto outside = [high](int64_t value) { return value < 0 || value >= high; };
  int64_t count = 0;  // not find_if alone: a loop without a branch, as every forward and backward of ids has it
  for (const int64_t* i = id; i != end; ++i) count += outside(*i) ? 1 : 0;
  if (count == 0) return;
  const int64_t* const first = std::find_if(id, end, outside);
  TORCH_CHECK(false, op, ": ", name, "[", first - id, "] must be in [0, ", high, "), got ", *first);
}

/// Keys of `tokens` tokens (-1: any).
void check_keys(const char* op, double p, int64_t site, const OptionalTensor& keys, int64_t tokens,
                const Tensor& like) {
  TORCH_CHECK(p >= 0.0 && p < 1.0, op, ": dropout probability must be in [0, 1), got ", p);
  TORCH_CHECK(site >= 0 && site <= std::numeric_limits<uint32_t>::max(), op,
              ": dropout.site must be in [0, 2^32), got ", site);
  if (p > 0.0) check_integers(op, "dropout.keys", keys.value_or(Tensor()), tokens, at::kLong, like);
}

/// A mask that forward kept (Note [Kept masks]), or nothing.
void check_kept(const char* op, const Tensor& kept, int64_t rows, int64_t columns, const Tensor& like) {
  const bool empty = kept.defined() && kept.numel() == 0;
  check_tensor(op, "kept", kept, empty ? kept.sizes() : at::IntArrayRef({rows, simd::kept_bytes(columns)}), like);
  check_type(op, "kept", kept, at::kByte, "as forward returns it");
}

/// Lengths on the CPU lie in [0, high]; returns the number of tokens (-1 where nobody looks).
int64_t check_lengths(const char* op, const Tensor& cu_seqlens, int64_t high) {
  if (!cu_seqlens.is_cpu()) return -1;
  const int32_t* cu = cu_seqlens.const_data_ptr<int32_t>();
  TORCH_CHECK(cu[0] == 0, op, ": cu_seqlens must begin with 0, got ", cu[0]);
  for (int64_t b = 0; b + 1 < cu_seqlens.size(0); ++b) {
    TORCH_CHECK(cu[b + 1] >= cu[b] && cu[b + 1] - cu[b] <= high, op, ": a sequence must have 0 to ", high,
                " tokens, got cu_seqlens ", cu[b], " then ", cu[b + 1], " at ", b);
  }
  return cu[cu_seqlens.size(0) - 1];
}

void check_eps(const char* op, double eps) { TORCH_CHECK(eps > 0.0, op, ": eps must be above 0, got ", eps); }

// What a forward and its backward take alike.

void check_sequences(const char* op, const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                     int64_t num_heads) {
  check(op, "qkv", qkv, {-1, -1}, qkv);
  const int64_t columns = qkv.size(1);
  TORCH_CHECK(columns > 0 && columns % 3 == 0 && num_heads > 0 && columns / 3 % num_heads == 0, op,
              ": qkv must be [T, 3 * num_heads * D] with D > 0, got ", qkv.sizes(), " for num_heads = ", num_heads);
  check_integers(op, "cu_seqlens", cu_seqlens, -1, at::kInt, qkv);
  TORCH_CHECK(cu_seqlens.size(0) > 0 && max_seqlen >= 0, op,
              ": cu_seqlens must be [B + 1] and max_seqlen not negative, got ", cu_seqlens.sizes(), " and ",
              max_seqlen);
  if (const int64_t end = check_lengths(op, cu_seqlens, max_seqlen); end >= 0) {
    TORCH_CHECK(end == qkv.size(0), op, ": cu_seqlens must go from 0 to the number of tokens, ", qkv.size(0),
                ", got 0 to ", end);
  }
}

void check_scores(const char* op, const Tensor& scores, const Tensor& cu_seqlens, double p, int64_t site,
                  const OptionalTensor& keys) {
  check(op, "scores", scores, {-1, -1, -1, -1}, scores);
  check_integers(op, "cu_seqlens", cu_seqlens, scores.size(0) + 1, at::kInt, scores);
  const int64_t tokens = check_lengths(op, cu_seqlens, std::min(scores.size(2), scores.size(3)));
  check_keys(op, p, site, keys, tokens, scores);
}

struct Embedding {
  const Tensor &input_ids, &position_ids, &token_type_ids, &word, &position, &type;
};
void check_embedding(const char* op, const Embedding& in, const Tensor& gamma) {
  check(op, "word", in.word, {-1, -1}, in.word);
  const int64_t hidden = in.word.size(1);
  check(op, "position", in.position, {-1, hidden}, in.word);
  check(op, "type", in.type, {-1, hidden}, in.word);
  check(op, "gamma", gamma, {hidden}, in.word);
  check_integers(op, "input_ids", in.input_ids, -1, at::kLong, in.word);
  check_integers(op, "position_ids", in.position_ids, in.input_ids.size(0), at::kLong, in.word);
  check_integers(op, "token_type_ids", in.token_type_ids, in.input_ids.size(0), at::kLong, in.word);
  check_range(op, "input_ids", in.input_ids, in.word.size(0));
  check_range(op, "position_ids", in.position_ids, in.position.size(0));
  check_range(op, "token_type_ids", in.token_type_ids, in.type.size(0));
}

void check_logits(const char* op, const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  check(op, "logits", logits, {-1, -1}, logits);
  TORCH_CHECK(num_classes > 0 && num_classes <= logits.size(1), op, ": num_classes must be in [1, ", logits.size(1),
              "], got ", num_classes);
  check_integers(op, "labels", labels, logits.size(0), at::kLong, logits);
  check_range(op, "labels", labels, num_classes);
}

/// [T, ...]; returns the columns of a row.
int64_t check_rows(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK(!tensor.defined() || tensor.dim() > 0, op, ": ", name, " must be [T, ...], got a scalar");
  check(op, name, tensor, tensor.sizes(), tensor);
  return tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
}

}  // namespace

void linear_dtypes(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  constexpr auto kRemedy = ". Convert one of them, or use autocast.";
  check_type("linear", "weight", weight, x.scalar_type(), "as x is", kRemedy);
  if (bias) check_type("linear", "bias", *bias, x.scalar_type(), "as x is", kRemedy);
}

void linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  constexpr auto kOp = "linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  if (bias) check(kOp, "bias", *bias, {weight.size(0)}, x);
}

void linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight, std::array<bool, 3> /*needed*/) {
  constexpr auto kOp = "linear_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  check(kOp, "grad", grad, {x.size(0), weight.size(0)}, x);
  check_type(kOp, "weight", weight, x.scalar_type(), "as x is");
  check_type(kOp, "grad", grad, x.scalar_type(), "as x is");
}

void qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias) {
  constexpr auto kOp = "qkv_linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "query_weight", query_weight, {-1, x.size(1)}, x);
  const int64_t hidden = query_weight.size(0);
  check(kOp, "key_weight", key_weight, {hidden, x.size(1)}, x);
  check(kOp, "value_weight", value_weight, {hidden, x.size(1)}, x);
  check(kOp, "query_bias", query_bias, {hidden}, x);
  check(kOp, "key_bias", key_bias, {hidden}, x);
  check(kOp, "value_bias", value_bias, {hidden}, x);
}

void padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  constexpr auto kOp = "padded_linear";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "weight", weight, {-1, x.size(1)}, x);
  check(kOp, "bias", bias, {weight.size(0)}, x);
  TORCH_CHECK(columns >= weight.size(0), kOp, ": columns must be at least the weight's ", weight.size(0), " rows, got ",
              columns);
}

void bias_gelu(const Tensor& x, const Tensor& bias, bool /*tanh*/) {
  constexpr auto kOp = "bias_gelu";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
}

void bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool /*tanh*/) {
  constexpr auto kOp = "bias_gelu_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "grad", grad, x.sizes(), x);
}

void layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  constexpr auto kOp = "layer_norm";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check(kOp, "beta", beta, {x.size(1)}, x);
  check_eps(kOp, eps);
}

void layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                         const Tensor& gamma) {
  constexpr auto kOp = "layer_norm_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "grad", grad, x.sizes(), x);
  check_statistic(kOp, "mean", mean, {x.size(0)}, x);
  check_statistic(kOp, "rstd", rstd, {x.size(0)}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
}

void bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma,
                                      const Tensor& beta, double eps, double p, int64_t /*seed*/, int64_t site,
                                      const OptionalTensor& keys) {
  constexpr auto kOp = "bias_dropout_residual_layer_norm";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "residual", residual, x.sizes(), x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check(kOp, "beta", beta, {x.size(1)}, x);
  check_eps(kOp, eps);
  check_keys(kOp, p, site, keys, x.size(0), x);
}

void bias_dropout_residual_layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& bias,
                                               const Tensor& residual, const Tensor& mean, const Tensor& rstd,
                                               const Tensor& gamma, double p, int64_t /*seed*/, int64_t site,
                                               const OptionalTensor& keys, const Tensor& kept) {
  constexpr auto kOp = "bias_dropout_residual_layer_norm_backward";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "grad", grad, x.sizes(), x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "residual", residual, x.sizes(), x);
  check_statistic(kOp, "mean", mean, {x.size(0)}, x);
  check_statistic(kOp, "rstd", rstd, {x.size(0)}, x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check_keys(kOp, p, site, keys, x.size(0), x);
  check_kept(kOp, kept, x.size(0), x.size(1), x);
}

void embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                                  const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& gamma,
                                  const Tensor& beta, double eps, double p, int64_t /*seed*/, int64_t site,
                                  const OptionalTensor& keys) {
  constexpr auto kOp = "embedding_layer_norm_dropout";
  check_embedding(kOp, {input_ids, position_ids, token_type_ids, word, position, type}, gamma);
  check(kOp, "beta", beta, {word.size(1)}, word);
  check_eps(kOp, eps);
  check_keys(kOp, p, site, keys, input_ids.size(0), word);
}

void embedding_layer_norm_dropout_backward(const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids,
                                           const Tensor& token_type_ids, const Tensor& word, const Tensor& position,
                                           const Tensor& type, const Tensor& mean, const Tensor& rstd,
                                           const Tensor& gamma, double p, int64_t /*seed*/, int64_t site,
                                           const OptionalTensor& keys, const Tensor& kept) {
  constexpr auto kOp = "embedding_layer_norm_dropout_backward";
  check_embedding(kOp, {input_ids, position_ids, token_type_ids, word, position, type}, gamma);
  const int64_t tokens = input_ids.size(0), hidden = word.size(1);
  check(kOp, "grad", grad, {tokens, hidden}, word);
  check_statistic(kOp, "mean", mean, {tokens}, word);
  check_statistic(kOp, "rstd", rstd, {tokens}, word);
  check_keys(kOp, p, site, keys, tokens, word);
  check_kept(kOp, kept, tokens, hidden, word);
}

void attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads, double p,
               int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "attention";
  check_sequences(kOp, qkv, cu_seqlens, max_seqlen, num_heads);
  check_keys(kOp, p, site, keys, qkv.size(0), qkv);
}

void attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                        const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                        double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "attention_backward";
  check_sequences(kOp, qkv, cu_seqlens, max_seqlen, num_heads);
  const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3;
  check(kOp, "grad", grad, {tokens, hidden}, qkv);
  check(kOp, "out", out, {tokens, hidden}, qkv);
  check_type(kOp, "out", out, qkv.scalar_type(), "as qkv is");
  if (qkv.is_cuda()) {  // LibTorch's kernels have shapes of their own (attention.cc)
    TORCH_CHECK(logsumexp.defined() && rng_state.defined(), kOp, ": logsumexp and rng_state must be those of forward, ",
                "got an undefined tensor");
  } else {
    check_statistic(kOp, "logsumexp", logsumexp, {num_heads, tokens}, qkv);
    check_integers(kOp, "rng_state", rng_state, 0, at::kLong, qkv);
  }
  check_keys(kOp, p, site, keys, tokens, qkv);
}

void masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double /*scale*/, double p,
                            int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  check_scores("masked_softmax_dropout", scores, cu_seqlens, p, site, keys);
}

void masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                     const Tensor& cu_seqlens, double /*scale*/, double p, int64_t /*seed*/,
                                     int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "masked_softmax_dropout_backward";
  check_scores(kOp, scores, cu_seqlens, p, site, keys);
  check(kOp, "grad", grad, scores.sizes(), scores);
  check_statistic(kOp, "logsumexp", logsumexp, scores.sizes().slice(0, 3), scores);
}

void dropout(const Tensor& x, double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "dropout";
  check_rows(kOp, "x", x);
  check_keys(kOp, p, site, keys, x.size(0), x);
}

void dropout_backward(const Tensor& grad, double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys,
                      const Tensor& kept) {
  constexpr auto kOp = "dropout_backward";
  const int64_t columns = check_rows(kOp, "grad", grad);
  check_keys(kOp, p, site, keys, grad.size(0), grad);
  check_kept(kOp, kept, grad.size(0), columns, grad);
}

void dropout_mask(const Tensor& keys, int64_t /*seed*/, int64_t site, int64_t columns, double p) {
  constexpr auto kOp = "dropout_mask";
  check_integers(kOp, "keys", keys, -1, at::kLong, keys);
  check_keys(kOp, p, site, keys, keys.size(0), keys);
  TORCH_CHECK(columns >= 0, kOp, ": columns must not be negative, got ", columns);
}

void cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  check_logits("cross_entropy", logits, labels, num_classes);
}

void cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                             int64_t num_classes) {
  constexpr auto kOp = "cross_entropy_backward_";
  check_logits(kOp, logits, labels, num_classes);
  check(kOp, "grad", grad, {}, logits);
  check_statistic(kOp, "logsumexp", logsumexp, {logits.size(0)}, logits);
}

}  // namespace bert::checks
