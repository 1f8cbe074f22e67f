// What the kernels' .cu files offer to the rest: functions of raw device pointers and a stream that check nothing and
// only launch (shapes, dtypes and memory are the caller's: cuda_ops.cc in bert, the tests under the emulator). T is the
// type of activations, P that of parameters: (float, float), (Half, Half), (Half, float), (BFloat16, BFloat16),
// (BFloat16, float). Sums and statistics are fp32. Every function accepts zero rows, and runs the vector kernels where
// columns is a multiple of 8 and all pointers are aligned to 16 bytes, the slower kernels elsewhere. Results depend on
// nothing but the arguments.
#pragma once

#include <cstdint>

// nvcc's build and the emulator's are two programs made of one source: two namespaces, so that they may meet in one
// executable.
#ifdef BERT_EMULATE
#define BERT_KERNEL_BUILD emulated
#else
#define BERT_KERNEL_BUILD device
#endif

struct CUstream_st;

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

using Stream = CUstream_st*;

/// Which elements are dropped: Note [Dropout keys], philox.h. keys null: nothing is.
struct DropoutMask {
  const int64_t* keys = nullptr;  // [rows]
  uint64_t seed = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;  // dropout_threshold(p)
  float scale = 1.0F;      // 1 / (1 - p)
};

/// What is normalised: z = dropout(x + bias) + residual.
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
int64_t layer_norm_backward_workspace(int64_t rows, int64_t columns);

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
