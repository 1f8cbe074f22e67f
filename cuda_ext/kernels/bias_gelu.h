// Launchers of bias_gelu.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

template <class T, class P>
struct BiasGeluForward {
  int64_t rows = 0, columns = 0;
  bool tanh = true;         // the tanh form; else erf
  const T* x = nullptr;     // [rows, columns]
  const P* bias = nullptr;  // [columns]
  T* y = nullptr;           // [rows, columns]
};

template <class T, class P>
struct BiasGeluBackward {
  int64_t rows = 0, columns = 0;
  bool tanh = true;
  const T *dy = nullptr, *x = nullptr;  // [rows, columns]
  const P* bias = nullptr;              // [columns]
  T* dx = nullptr;                      // [rows, columns]
  P* dbias = nullptr;                   // [columns]
  float* workspace = nullptr;           // bias_gelu_backward_workspace() floats
};

/// y = gelu(x + bias).
template <class T, class P>
void bias_gelu_forward(const BiasGeluForward<T, P>& arguments, Stream stream);

template <class T, class P>
void bias_gelu_backward(const BiasGeluBackward<T, P>& arguments, Stream stream);
int64_t bias_gelu_backward_workspace(int64_t rows, int64_t columns);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
