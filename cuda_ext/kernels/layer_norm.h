// Launchers of layer_norm.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

/// The normalised input: z = dropout(x + bias) + residual.
template <class T, class P>
struct LayerNormInput {
  int64_t rows = 0, columns = 0;
  const T* x = nullptr;         // [rows, columns]
  const P* bias = nullptr;      // [columns], or null
  const T* residual = nullptr;  // [rows, columns], or null
  DropoutMask dropout;
};

template <class T, class P>
struct LayerNormForward {
  LayerNormInput<T, P> input;
  const P *gamma = nullptr, *beta = nullptr;  // [columns]
  float eps = 0.0F;
  T* y = nullptr;                          // [rows, columns]
  float *mean = nullptr, *rstd = nullptr;  // [rows]
};

template <class T, class P>
struct LayerNormBackward {
  LayerNormInput<T, P> input;
  const T* dy = nullptr;     // [rows, columns]
  const P* gamma = nullptr;  // [columns]
  const float *mean = nullptr, *rstd = nullptr;
  T* dx = nullptr;
  T* dresidual = nullptr;                                   // or null
  P *dgamma = nullptr, *dbeta = nullptr, *dbias = nullptr;  // [columns]; dbias or null
  float* workspace = nullptr;                               // layer_norm_backward_workspace() floats
};

/// y = (z - mean) * rstd * gamma + beta.
template <class T, class P>
void layer_norm_forward(const LayerNormForward<T, P>& arguments, Stream stream);

template <class T, class P>
void layer_norm_backward(const LayerNormBackward<T, P>& arguments, Stream stream);
/// plain: without bias, dropout and residual.
int64_t layer_norm_backward_workspace(int64_t rows, int64_t columns, bool plain);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
