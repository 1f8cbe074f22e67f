// Calls into the dispatcher, one function per schema of ops.cc. The layers (ops.h, autocast, autograd) call each other
// through these.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "cuda_ext/composite.h"

namespace bert::dispatch {

/// A schema's typed handle; the signature is that of the composition that serves it.
template <class Signature>
c10::TypedOperatorHandle<Signature> find(Signature*, const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// A function object `name` that looks the operator up once and calls it.
#define BERT_DISPATCH(name)                                                \
  inline constexpr auto name = [](auto&&... arguments) -> decltype(auto) { \
    static const auto handle = find(&composite::name, "bert::" #name);     \
    return handle.call(std::forward<decltype(arguments)>(arguments)...);   \
  }

BERT_DISPATCH(linear);
BERT_DISPATCH(linear_backward);
BERT_DISPATCH(qkv_linear);
BERT_DISPATCH(bias_gelu);
BERT_DISPATCH(bias_gelu_backward);
BERT_DISPATCH(layer_norm);
BERT_DISPATCH(layer_norm_backward);
BERT_DISPATCH(bias_dropout_residual_layer_norm);
BERT_DISPATCH(bias_dropout_residual_layer_norm_backward);
BERT_DISPATCH(embedding_layer_norm_dropout);
BERT_DISPATCH(embedding_layer_norm_dropout_backward);
BERT_DISPATCH(attention);
BERT_DISPATCH(attention_backward);
BERT_DISPATCH(masked_softmax_dropout);
BERT_DISPATCH(masked_softmax_dropout_backward);
BERT_DISPATCH(dropout);
BERT_DISPATCH(dropout_mask);
BERT_DISPATCH(cross_entropy);
BERT_DISPATCH(cross_entropy_backward_);

#undef BERT_DISPATCH

}  // namespace bert::dispatch
