// Schemas of the operators, the place of their argument checks, and the compositions that serve where a backend has no
// kernel.
//
// How an operator is put together: its schema stands here once; checks.cc says what it demands of its arguments;
// bert::composite implements it for any device and dtype (CompositeExplicitAutograd); cuda_ext/cpu/kernels.cc and the .cu files
// register faster kernels for their device with one line each in a TORCH_LIBRARY_IMPL(bert, CPU | CUDA, m) block;
// autograd.cc and autocast.cc wrap the forward. Every layer calls the dispatcher again.
//
// Note [Argument checks]
// An operator's kernel for BackendSelect checks its arguments and hands them on to the device's kernel. LibTorch asks
// for that key in every call, whatever the tensors are, between autocast and autograd above and all devices below, and
// in inference mode too: so each call is checked once, from ops.h, autograd's backward, Python or TorchScript. Where a
// layer above works with the arguments before it hands them on, it checks them first: autograd's qkv_linear and
// padded_linear, which become linear, autocast's bias_dropout_residual_layer_norm, and dispatch.h for the plain
// expressions of a ReferenceOps.
#include "cuda_ext/ops.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <optional>
#include <utility>

#include "cuda_ext/dispatch/checks.h"
#include "cuda_ext/dispatch/composite.h"
#include "cuda_ext/dispatch/dispatch.h"
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

namespace {

/// An operator's kernel for BackendSelect. See Note [Argument checks].
template <auto check, auto handle>
struct Checked;
template <class... Arguments, void (*check)(Arguments...), auto handle>
struct Checked<check, handle> {
  static decltype(auto) call(c10::DispatchKeySet keys, Arguments... arguments) {
    constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, c10::DispatchKey::BackendSelect);
    check(arguments...);
    return handle().redispatch(keys & kBelow, std::forward<Arguments>(arguments)...);
  }
};

}  // namespace

TORCH_LIBRARY_IMPL(bert, BackendSelect, m) {
#define BERT_CHECKED(name) m.impl(#name, Checked<bert::checks::name, bert::dispatch::name##_handle>::call)
  BERT_CHECKED(linear);
  BERT_CHECKED(linear_backward);
  BERT_CHECKED(qkv_linear);
  BERT_CHECKED(padded_linear);
  BERT_CHECKED(bias_gelu);
  BERT_CHECKED(bias_gelu_backward);
  BERT_CHECKED(layer_norm);
  BERT_CHECKED(layer_norm_backward);
  BERT_CHECKED(bias_dropout_residual_layer_norm);
  BERT_CHECKED(bias_dropout_residual_layer_norm_backward);
  BERT_CHECKED(embedding_layer_norm_dropout);
  BERT_CHECKED(embedding_layer_norm_dropout_backward);
  BERT_CHECKED(attention);
  BERT_CHECKED(attention_backward);
  BERT_CHECKED(masked_softmax_dropout);
  BERT_CHECKED(masked_softmax_dropout_backward);
  BERT_CHECKED(dropout);
  BERT_CHECKED(dropout_backward);
  BERT_CHECKED(dropout_mask);
  BERT_CHECKED(cross_entropy);
  BERT_CHECKED(cross_entropy_backward_);
#undef BERT_CHECKED
}

namespace bert::ops {
namespace {

using at::Tensor;

std::optional<Tensor> optional(const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return dispatch::linear(x, weight, optional(bias));
}

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns) {
  return dispatch::padded_linear(x, weight, bias, columns);
}

Tensor qkv_linear(const Tensor& x, const QkvParameters& parameters) {
  return dispatch::qkv_linear(x, parameters.query_weight, parameters.key_weight, parameters.value_weight,
                              parameters.query_bias, parameters.key_bias, parameters.value_bias);
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, Gelu form) {
  return dispatch::bias_gelu(x, bias, form == Gelu::kTanh);
}

Tensor bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias, const Tensor& residual,
                                        const Tensor& gamma, const Tensor& beta, double eps, const Dropout& dropout) {
  return std::get<0>(dispatch::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, dropout.p,
                                                                dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  return std::get<0>(dispatch::layer_norm(x, gamma, beta, eps));
}

Tensor embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                                    const EmbeddingTables& tables, const Tensor& gamma, const Tensor& beta, double eps,
                                    const Dropout& dropout) {
  return std::get<0>(dispatch::embedding_layer_norm_dropout(input_ids, position_ids, token_type_ids, tables.word,
                                                            tables.position, tables.type, gamma, beta, eps, dropout.p,
                                                            dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                 const Dropout& dropout) {
  return std::get<0>(dispatch::attention(qkv, cu_seqlens, max_seqlen, num_heads, dropout.p, dropout.seed, dropout.site,
                                         optional(dropout.keys)));
}

Tensor masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale, const Dropout& dropout) {
  return std::get<0>(dispatch::masked_softmax_dropout(scores, cu_seqlens, scale, dropout.p, dropout.seed, dropout.site,
                                                      optional(dropout.keys)));
}

Tensor dropout(const Tensor& x, const Dropout& dropout) {
  if (dropout.p == 0.0) {  // without the copy that an operator's result is
    checks::dropout(x, dropout.p, dropout.seed, dropout.site, optional(dropout.keys));
    return x;
  }
  return std::get<0>(dispatch::dropout(x, dropout.p, dropout.seed, dropout.site, optional(dropout.keys)));
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  return std::get<0>(dispatch::cross_entropy(logits, labels, num_classes));
}

}  // namespace bert::ops
