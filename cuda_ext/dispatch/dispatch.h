// Calls into the dispatcher, one function per schema of ops.cc. The layers (ops.h, autocast, autograd) call each other
// through these.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "cuda_ext/dispatch/checks.h"
#include "cuda_ext/dispatch/composite.h"
#include "cuda_ext/dispatch/reference_ops.h"

namespace bert::dispatch {

/// A schema's typed handle; the signature is that of the composition that serves it.
template <class Signature>
c10::TypedOperatorHandle<Signature> find(Signature*, const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// name_handle(): the operator, looked up once.
#define BERT_HANDLE(name)                                              \
  inline const auto& name##_handle() {                                 \
    static const auto handle = find(&composite::name, "bert::" #name); \
    return handle;                                                     \
  }

// A function object `name` that calls it.
#define BERT_DISPATCH(name)                                                       \
  BERT_HANDLE(name)                                                               \
  inline constexpr auto name = [](auto&&... arguments) -> decltype(auto) {        \
    return name##_handle().call(std::forward<decltype(arguments)>(arguments)...); \
  }

// The same for what ops.h calls: in the scope of a ReferenceOps that names the group, the plain expression.
#define BERT_OPERATOR(name, group)                                                \
  BERT_HANDLE(name)                                                               \
  inline constexpr auto name = [](auto&&... arguments) -> decltype(auto) {        \
    if (reference::replaces(OpGroup::group)) [[unlikely]] {                       \
      checks::name(arguments...);                                                 \
      return reference::name(arguments...);                                       \
    }                                                                             \
    return name##_handle().call(std::forward<decltype(arguments)>(arguments)...); \
  }

BERT_OPERATOR(linear, kLinear);
BERT_DISPATCH(linear_backward);
BERT_OPERATOR(qkv_linear, kLinear);
BERT_OPERATOR(padded_linear, kLinear);
BERT_OPERATOR(bias_gelu, kGelu);
BERT_DISPATCH(bias_gelu_backward);
BERT_OPERATOR(layer_norm, kLayerNorm);
BERT_DISPATCH(layer_norm_backward);
BERT_OPERATOR(bias_dropout_residual_layer_norm, kLayerNorm);
BERT_DISPATCH(bias_dropout_residual_layer_norm_backward);
BERT_OPERATOR(embedding_layer_norm_dropout, kLayerNorm);
BERT_DISPATCH(embedding_layer_norm_dropout_backward);
BERT_OPERATOR(attention, kAttention);
BERT_DISPATCH(attention_backward);
BERT_OPERATOR(masked_softmax_dropout, kSoftmax);
BERT_DISPATCH(masked_softmax_dropout_backward);
BERT_OPERATOR(dropout, kDropout);
BERT_DISPATCH(dropout_backward);
BERT_DISPATCH(dropout_mask);
BERT_OPERATOR(cross_entropy, kCrossEntropy);
BERT_DISPATCH(cross_entropy_backward_);

#undef BERT_DISPATCH
#undef BERT_OPERATOR
#undef BERT_HANDLE

}  // namespace bert::dispatch
