// Launchers of softmax_dropout.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

template <class T>
struct MaskedSoftmaxInput {
  int64_t sequences = 0, heads = 0, queries = 0, columns = 0;
  const int32_t* cu_seqlens = nullptr;  // [sequences + 1]
  float scale = 1.0F;
  const T* scores = nullptr;  // [sequences, heads, queries, columns]
  DropoutMask dropout;        // keys by token, [cu_seqlens[sequences]]; the site of the first head
};

template <class T>
struct MaskedSoftmaxForward {
  MaskedSoftmaxInput<T> input;
  T* y = nullptr;              // like scores
  float* logsumexp = nullptr;  // [sequences, heads, queries]
};

template <class T>
struct MaskedSoftmaxBackward {
  MaskedSoftmaxInput<T> input;
  const T* dy = nullptr;  // like scores
  const float* logsumexp = nullptr;
  T* dscores = nullptr;  // like scores
};

/// y = dropout(softmax(scale scores)) over the first `length` columns of the first `length` queries of each sequence,
/// length = the difference of its cu_seqlens; 0 in the rest, which is not read, and logsumexp -infinity.
template <class T>
void masked_softmax_forward(const MaskedSoftmaxForward<T>& arguments, Stream stream);

template <class T>
void masked_softmax_backward(const MaskedSoftmaxBackward<T>& arguments, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
