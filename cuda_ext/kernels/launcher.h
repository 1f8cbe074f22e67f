// What every .cu file offers to the rest, in a header of its name: functions of raw device pointers and a stream that check nothing and
// only launch (shapes, dtypes and memory are the caller's: cuda_ext/cuda/ in bert, the tests under the emulator). T is the
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

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
