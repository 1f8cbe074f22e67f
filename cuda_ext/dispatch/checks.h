// What every operator demands of its arguments: one function for each schema of ops.cc, with the operator's parameters.
// They throw c10::Error that names the operator, the argument, what is expected and what it is. The CPU's ids, labels
// and lengths are looked at; those on another device are not, as that would wait for it.
#pragma once

#include "cuda_ext/dispatch/composite.h"

namespace bert::checks {

template <class Operator>
struct CheckOf;
template <class Result, class... Arguments>
struct CheckOf<Result(Arguments...)> {
  using Type = void(Arguments...);
};

#define BERT_CHECK(name) CheckOf<decltype(composite::name)>::Type name

BERT_CHECK(linear);
BERT_CHECK(linear_backward);
BERT_CHECK(qkv_linear);
BERT_CHECK(padded_linear);
BERT_CHECK(bias_gelu);
BERT_CHECK(bias_gelu_backward);
BERT_CHECK(layer_norm);
BERT_CHECK(layer_norm_backward);
BERT_CHECK(bias_dropout_residual_layer_norm);
BERT_CHECK(bias_dropout_residual_layer_norm_backward);
BERT_CHECK(embedding_layer_norm_dropout);
BERT_CHECK(embedding_layer_norm_dropout_backward);
BERT_CHECK(attention);
BERT_CHECK(attention_backward);
BERT_CHECK(masked_softmax_dropout);
BERT_CHECK(masked_softmax_dropout_backward);
BERT_CHECK(dropout);
BERT_CHECK(dropout_backward);
BERT_CHECK(dropout_mask);
BERT_CHECK(cross_entropy);
BERT_CHECK(cross_entropy_backward_);

#undef BERT_CHECK

/// A product's tensors have one dtype. Its kernels ask, and linear() above does not: in a ReferenceOps scope ATen's own
/// autocast may be yet to come.
void linear_dtypes(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias);

}  // namespace bert::checks
