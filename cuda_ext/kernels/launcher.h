// Common parts of the launchers. Each .cu file has a header of its name with its launchers: functions of raw device
// pointers and a stream, which check nothing and only launch. Shapes, dtypes and memory are the business of the caller:
// cuda_ext/cuda/ in bert, the tests under the emulator. T is the type of activations, P that of parameters: (float,
// float), (Half, Half), (Half, float), (BFloat16, BFloat16), (BFloat16, float). Sums and statistics are fp32. Every
// function accepts zero rows. The vector kernels run if columns is a multiple of 8 and all pointers are aligned to 16
// bytes, the slower kernels otherwise. Results depend on the arguments alone.
#pragma once

#include <cstdint>

// The builds of nvcc and of the emulator are two programs made of one source. They have two namespaces, so that both
// can be linked into one executable. The tests compile the host files of cuda/ with BERT_KERNEL_BUILD=emulated, so
// that these launch the emulator's kernels.
#if defined(BERT_EMULATE)
#define BERT_KERNEL_BUILD emulated
#elif !defined(BERT_KERNEL_BUILD)
#define BERT_KERNEL_BUILD device
#endif

struct CUstream_st;

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

using Stream = CUstream_st*;

/// The mask of dropout: Note [Dropout keys], philox.h. keys null: nothing is dropped.
struct DropoutMask {
  const int64_t* keys = nullptr;  // [rows]
  uint64_t seed = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;  // dropout_threshold(p)
  float scale = 1.0F;      // 1 / (1 - p)
};

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
