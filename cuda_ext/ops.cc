// Schemas of the operators, argument checks, and the compositions that serve where a backend has no kernel.
//
// How an operator is put together: its schema stands here once; bert::composite implements it for any device and dtype
// (CompositeExplicitAutograd); cpu_kernels.cc and the .cu files register faster kernels for their device with one line
// each in a TORCH_LIBRARY_IMPL(bert, CPU | CUDA, m) block; autograd.cc and autocast.cc wrap the forward. Every layer
// calls the dispatcher again.
#include "cuda_ext/ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>

#include "cuda_ext/composite.h"
#include "cuda_ext/dispatch.h"
#include "cuda_ext/padded_linear.h"

TORCH_LIBRARY(bert, m) {
  m.def("linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor");
  m.def("linear_backward(Tensor grad, Tensor x, Tensor weight, bool[3] needed) -> (Tensor, Tensor, Tensor)");
  m.def(
      "qkv_linear(Tensor x, Tensor query_weight, Tensor key_weight, Tensor value_weight, Tensor query_bias, Tensor "
      "key_bias, "
      "Tensor value_bias) -> Tensor");
  m.def("padded_linear(Tensor x, Tensor weight, Tensor bias, int columns) -> Tensor");
  m.def("bias_gelu(Tensor x, Tensor bias, bool tanh) -> Tensor");
  m.def("bias_gelu_backward(Tensor grad, Tensor x, Tensor bias, bool tanh) -> (Tensor dx, Tensor dbias)");
  m.def("layer_norm(Tensor x, Tensor gamma, Tensor beta, float eps) -> (Tensor y, Tensor mean, Tensor rstd)");
  m.def(
      "layer_norm_backward(Tensor grad, Tensor x, Tensor mean, Tensor rstd, Tensor gamma) -> (Tensor dx, Tensor "
      "dgamma, Tensor "
      "dbeta)");
  // kept: the mask's bits where backward reads them instead of drawing it again (Note [Kept masks]), else empty.
  m.def(
      "bias_dropout_residual_layer_norm(Tensor x, Tensor bias, Tensor residual, Tensor gamma, Tensor beta, float eps, "
      "float p, int seed, int site, Tensor? keys) -> (Tensor y, Tensor mean, Tensor rstd, Tensor kept)");
  m.def(
      "bias_dropout_residual_layer_norm_backward(Tensor grad, Tensor x, Tensor bias, Tensor residual, Tensor mean, "
      "Tensor rstd, Tensor gamma, float p, int seed, int site, Tensor? keys, Tensor kept) -> (Tensor dx, Tensor dbias, "
      "Tensor dresidual, Tensor dgamma, Tensor dbeta)");
  m.def(
      "embedding_layer_norm_dropout(Tensor input_ids, Tensor position_ids, Tensor token_type_ids, Tensor word, Tensor "
      "position, Tensor type, Tensor gamma, Tensor beta, float eps, float p, int seed, int site, Tensor? keys) -> "
      "(Tensor y, Tensor mean, Tensor rstd, Tensor kept)");
  m.def(
      "embedding_layer_norm_dropout_backward(Tensor grad, Tensor input_ids, Tensor position_ids, Tensor "
      "token_type_ids, Tensor word, Tensor position, Tensor type, Tensor mean, Tensor rstd, Tensor gamma, float p, int "
      "seed, int site, Tensor? keys, Tensor kept) -> (Tensor dword, Tensor dposition, Tensor dtype, Tensor dgamma, "
      "Tensor dbeta)");
  m.def(
      "attention(Tensor qkv, Tensor cu_seqlens, int max_seqlen, int num_heads, float p, int seed, int site, Tensor? "
      "keys) -> "
      "(Tensor out, Tensor logsumexp, Tensor rng_state)");
  m.def(
      "attention_backward(Tensor grad, Tensor qkv, Tensor out, Tensor logsumexp, Tensor rng_state, Tensor cu_seqlens, "
      "int max_seqlen, int num_heads, float p, int seed, int site, Tensor? keys) -> Tensor");
  m.def(
      "masked_softmax_dropout(Tensor scores, Tensor cu_seqlens, float scale, float p, int seed, int site, Tensor? "
      "keys) -> (Tensor y, Tensor logsumexp)");
  m.def(
      "masked_softmax_dropout_backward(Tensor grad, Tensor scores, Tensor logsumexp, Tensor cu_seqlens, float scale, "
      "float p, int seed, int site, Tensor? keys) -> Tensor");
  m.def("dropout(Tensor x, float p, int seed, int site, Tensor? keys) -> (Tensor y, Tensor kept)");
  m.def("dropout_backward(Tensor grad, float p, int seed, int site, Tensor? keys, Tensor kept) -> Tensor");
  m.def("dropout_mask(Tensor keys, int seed, int site, int columns, float p) -> Tensor");
  m.def("cross_entropy(Tensor logits, Tensor labels, int num_classes) -> (Tensor loss, Tensor logsumexp)");
  m.def(
      "cross_entropy_backward_(Tensor(a!) logits, Tensor grad, Tensor labels, Tensor logsumexp, int num_classes) -> "
      "Tensor(a!)");
}

TORCH_LIBRARY_IMPL(bert, CompositeExplicitAutograd, m) {
  namespace composite = bert::composite;
  m.impl("linear", composite::linear);
  m.impl("linear_backward", composite::linear_backward);
  m.impl("qkv_linear", composite::qkv_linear);
  m.impl("padded_linear", composite::padded_linear);
  m.impl("bias_gelu", composite::bias_gelu);
  m.impl("bias_gelu_backward", composite::bias_gelu_backward);
  m.impl("layer_norm", composite::layer_norm);
  m.impl("layer_norm_backward", composite::layer_norm_backward);
  m.impl("bias_dropout_residual_layer_norm", composite::bias_dropout_residual_layer_norm);
  m.impl("bias_dropout_residual_layer_norm_backward", composite::bias_dropout_residual_layer_norm_backward);
  m.impl("embedding_layer_norm_dropout", composite::embedding_layer_norm_dropout);
  m.impl("embedding_layer_norm_dropout_backward", composite::embedding_layer_norm_dropout_backward);
  m.impl("attention", composite::attention);
  m.impl("attention_backward", composite::attention_backward);
  m.impl("masked_softmax_dropout", composite::masked_softmax_dropout);
  m.impl("masked_softmax_dropout_backward", composite::masked_softmax_dropout_backward);
  m.impl("dropout", composite::dropout);
  m.impl("dropout_backward", composite::dropout_backward);
  m.impl("dropout_mask", composite::dropout_mask);
  m.impl("cross_entropy", composite::cross_entropy);
  m.impl("cross_entropy_backward_", composite::cross_entropy_backward_);
}

namespace bert::ops {
namespace {

using at::Tensor;

std::optional<Tensor> optional(const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

/// One argument: floating point, of this shape (-1: any), contiguous, on the device of `like`.
void check(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined; a tensor of shape ", shape, " is expected");
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || tensor.size(static_cast<int64_t>(i)) == shape[i];
  }
  TORCH_CHECK(fits, op, ": ", name, " must be ", shape, " (-1: any), got ", tensor.sizes());
  TORCH_CHECK(tensor.is_floating_point(), op, ": ", name, " must be a floating-point tensor, got ",
              tensor.scalar_type());
  TORCH_CHECK(tensor.is_contiguous(), op, ": ", name, " must be contiguous, got strides ", tensor.strides(),
              " of shape ", tensor.sizes(), ". Call contiguous() first.");
  TORCH_CHECK(tensor.device() == like.device(), op, ": ", name, " must be on ", like.device(), ", got ",
              tensor.device());
}

void check_integers(const char* op, const char* name, const Tensor& tensor, int64_t size, at::ScalarType type,
                    const Tensor& like) {
  TORCH_CHECK(
      tensor.defined() && tensor.dim() == 1 && (size < 0 || tensor.size(0) == size) && tensor.scalar_type() == type, op,
      ": ", name, " must be [", size, "] ", type, ", got ",
      tensor.defined() ? c10::str(tensor.sizes(), " ", tensor.scalar_type()) : "an undefined tensor");
  TORCH_CHECK(tensor.is_contiguous() && tensor.device() == like.device(), op, ": ", name, " must be contiguous and on ",
              like.device(), ", got strides ", tensor.strides(), " on ", tensor.device());
}

/// Ids on the CPU lie in [0, high). On another device nobody looks: that would wait for it.
void check_range(const char* op, const char* name, const Tensor& ids, int64_t high) {
  if (!ids.is_cpu()) return;
  const int64_t* id = ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    TORCH_CHECK(id[i] >= 0 && id[i] < high, op, ": ", name, "[", i, "] must be in [0, ", high, "), got ", id[i]);
  }
}

void check_dropout(const char* op, const Dropout& dropout, int64_t tokens, const Tensor& like) {
  TORCH_CHECK(dropout.p >= 0.0 && dropout.p < 1.0, op, ": dropout probability must be in [0, 1), got ", dropout.p);
  if (dropout.p > 0.0) check_integers(op, "dropout.keys", dropout.keys, tokens, at::kLong, like);
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

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check("linear", "x", x, {-1, -1}, x);
  check("linear", "weight", weight, {-1, x.size(1)}, x);
  if (bias.defined()) check("linear", "bias", bias, {weight.size(0)}, x);
  return dispatch::linear(x, weight, optional(bias));
}

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  check("padded_linear", "x", x, {-1, -1}, x);
  check("padded_linear", "weight", weight, {-1, x.size(1)}, x);
  check("padded_linear", "bias", bias, {weight.size(0)}, x);
  TORCH_CHECK(columns >= weight.size(0), "padded_linear: columns must be at least the weight's ", weight.size(0),
              " rows, got ", columns);
  return dispatch::padded_linear(x, weight, bias, columns);
}

Tensor qkv_linear(const Tensor& x, const QkvParameters& parameters) {
  check("qkv_linear", "x", x, {-1, -1}, x);
  const int64_t hidden = parameters.query_weight.defined() ? parameters.query_weight.size(0) : x.size(1);
  check("qkv_linear", "query_weight", parameters.query_weight, {hidden, x.size(1)}, x);
  check("qkv_linear", "key_weight", parameters.key_weight, {hidden, x.size(1)}, x);
  check("qkv_linear", "value_weight", parameters.value_weight, {hidden, x.size(1)}, x);
  check("qkv_linear", "query_bias", parameters.query_bias, {hidden}, x);
  check("qkv_linear", "key_bias", parameters.key_bias, {hidden}, x);
  check("qkv_linear", "value_bias", parameters.value_bias, {hidden}, x);
  return dispatch::qkv_linear(x, parameters.query_weight, parameters.key_weight, parameters.value_weight,
                              parameters.query_bias, parameters.key_bias, parameters.value_bias);
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, Gelu form) {
  check("bias_gelu", "x", x, {-1, -1}, x);
  check("bias_gelu", "bias", bias, {x.size(1)}, x);
  return dispatch::bias_gelu(x, bias, form == Gelu::kTanh);
}

Tensor bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double eps, const Dropout& dropout) {
  constexpr auto kOp = "bias_dropout_residual_layer_norm";
  check(kOp, "x", x, {-1, -1}, x);
  check(kOp, "bias", bias, {x.size(1)}, x);
  check(kOp, "residual", residual, x.sizes(), x);
  check(kOp, "gamma", gamma, {x.size(1)}, x);
  check(kOp, "beta", beta, {x.size(1)}, x);
  check_eps(kOp, eps);
  check_dropout(kOp, dropout, x.size(0), x);
  return std::get<0>(dispatch::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, dropout.p,
                                                                dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  check("layer_norm", "x", x, {-1, -1}, x);
  check("layer_norm", "gamma", gamma, {x.size(1)}, x);
  check("layer_norm", "beta", beta, {x.size(1)}, x);
  check_eps("layer_norm", eps);
  return std::get<0>(dispatch::layer_norm(x, gamma, beta, eps));
}

Tensor embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                                    const EmbeddingTables& tables, const Tensor& gamma, const Tensor& beta, double eps,
                                    const Dropout& dropout) {
  constexpr auto kOp = "embedding_layer_norm_dropout";
  check(kOp, "word", tables.word, {-1, -1}, tables.word);
  const int64_t hidden = tables.word.size(1);
  check(kOp, "position", tables.position, {-1, hidden}, tables.word);
  check(kOp, "type", tables.type, {-1, hidden}, tables.word);
  check(kOp, "gamma", gamma, {hidden}, tables.word);
  check(kOp, "beta", beta, {hidden}, tables.word);
  check_eps(kOp, eps);
  check_integers(kOp, "input_ids", input_ids, -1, at::kLong, tables.word);
  check_integers(kOp, "position_ids", position_ids, input_ids.size(0), at::kLong, tables.word);
  check_integers(kOp, "token_type_ids", token_type_ids, input_ids.size(0), at::kLong, tables.word);
  check_range(kOp, "input_ids", input_ids, tables.word.size(0));
  check_range(kOp, "position_ids", position_ids, tables.position.size(0));
  check_range(kOp, "token_type_ids", token_type_ids, tables.type.size(0));
  check_dropout(kOp, dropout, input_ids.size(0), tables.word);
  return std::get<0>(dispatch::embedding_layer_norm_dropout(input_ids, position_ids, token_type_ids, tables.word,
                                                            tables.position, tables.type, gamma, beta, eps, dropout.p,
                                                            dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                 const Dropout& dropout) {
  check("attention", "qkv", qkv, {-1, -1}, qkv);
  TORCH_CHECK(num_heads > 0 && qkv.size(1) > 0 && qkv.size(1) % (3 * num_heads) == 0,
              "attention: qkv must be [T, 3 * num_heads * D] with D > 0, got ", qkv.sizes(),
              " for num_heads = ", num_heads);
  check_integers("attention", "cu_seqlens", cu_seqlens, -1, at::kInt, qkv);
  TORCH_CHECK(cu_seqlens.size(0) > 0 && max_seqlen >= 0,
              "attention: cu_seqlens must be [B + 1] and max_seqlen not negative, got ", cu_seqlens.sizes(), " and ",
              max_seqlen);
  if (const int64_t end = check_lengths("attention", cu_seqlens, max_seqlen); end >= 0) {
    TORCH_CHECK(end == qkv.size(0), "attention: cu_seqlens must go from 0 to the number of tokens, ", qkv.size(0),
                ", got 0 to ", end);
  }
  check_dropout("attention", dropout, qkv.size(0), qkv);
  return std::get<0>(dispatch::attention(qkv, cu_seqlens, max_seqlen, num_heads, dropout.p, dropout.seed, dropout.site,
                                         optional(dropout.keys)));
}

Tensor masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale, const Dropout& dropout) {
  constexpr auto kOp = "masked_softmax_dropout";
  check(kOp, "scores", scores, {-1, -1, -1, -1}, scores);
  check_integers(kOp, "cu_seqlens", cu_seqlens, scores.size(0) + 1, at::kInt, scores);
  check_dropout(kOp, dropout, check_lengths(kOp, cu_seqlens, std::min(scores.size(2), scores.size(3))), scores);
  return std::get<0>(dispatch::masked_softmax_dropout(scores, cu_seqlens, scale, dropout.p, dropout.seed, dropout.site,
                                                      optional(dropout.keys)));
}

Tensor dropout(const Tensor& x, const Dropout& dropout) {
  TORCH_CHECK(x.dim() > 0, "dropout: x must be [T, ...], got a scalar");
  check("dropout", "x", x, x.sizes(), x);
  check_dropout("dropout", dropout, x.size(0), x);
  if (dropout.p == 0.0) return x;
  return std::get<0>(dispatch::dropout(x, dropout.p, dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  check("cross_entropy", "logits", logits, {-1, -1}, logits);
  TORCH_CHECK(num_classes > 0 && num_classes <= logits.size(1), "cross_entropy: num_classes must be in [1, ",
              logits.size(1), "], got ", num_classes);
  check_integers("cross_entropy", "labels", labels, logits.size(0), at::kLong, logits);
  check_range("cross_entropy", "labels", labels, num_classes);
  return std::get<0>(dispatch::cross_entropy(logits, labels, num_classes));
}

}  // namespace bert::ops
