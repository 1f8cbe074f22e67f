// y = x / (1 - p) where kept and 0 where dropped; its backward is the same of dy. The mask itself is a second kernel.
//
// A thread owns eight columns, which are two counters of Philox, and walks down the rows. Bytes per element with 2-byte
// activations: 4 (read x, write y); the mask 1. Instructions per element in the loop (SASS by cuobjdump, sm_90, bf16):
// 17.5, of which the random numbers take 11. An H200's SMs have time for 25 at the bandwidth of its memory.
// Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/cuda_utils.cuh"
#include "cuda_ext/kernels/dropout.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMaxRowBlocks = 8192;  // of the grid's y

template <class T, int N>
__global__ void __launch_bounds__(kThreads) dropout_kernel(DropoutForward<T> a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const Vector<T, N> x = load<N>(a.x + row * a.columns + column);
    const uint32_t kept = keep_bits<N>(a.dropout, row_key(a.dropout, row), column);
    float y[N];
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = x[i] * mask_factor(a.dropout, kept, i);
    store_floats(a.y + row * a.columns + column, y);
  }
}

template <int N>
__global__ void __launch_bounds__(kThreads) dropout_mask_kernel(DropoutKept a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  for (int64_t row = blockIdx.y; row < a.rows; row += gridDim.y) {
    const uint32_t bits = keep_bits<N>(a.dropout, row_key(a.dropout, row), column);
    using Kept = Vector<bool, N>;
    Kept kept = {};
#pragma unroll
    for (int i = 0; i < N; ++i) {
      auto& word = kept.word[i / Kept::kElements];
      word = static_cast<typename Kept::Word>(word | (bits >> i & 1U) << (8 * (i % Kept::kElements)));
    }
    store(a.kept + row * a.columns + column, kept);
  }
}

Grid blocks(int64_t rows, int64_t columns, int width) {
  return {.x = ceil_divide(columns, kThreads * width), .y = static_cast<unsigned>(at_most(rows, kMaxRowBlocks))};
}

}  // namespace

template <class T>
void dropout_forward(const DropoutForward<T>& a, Stream stream) {
  if (a.rows == 0 || a.columns == 0) return;
  if (a.columns % kVectorWidth == 0 && all_aligned(a.x, a.y)) {
    launch(dropout_kernel<T, kVectorWidth>, blocks(a.rows, a.columns, kVectorWidth), kThreads, 0, stream, a);
  } else {
    launch(dropout_kernel<T, 1>, blocks(a.rows, a.columns, 1), kThreads, 0, stream, a);
  }
}

void dropout_kept(const DropoutKept& a, Stream stream) {
  if (a.rows == 0 || a.columns == 0) return;
  if (a.columns % kVectorWidth == 0 && all_aligned(a.kept)) {
    launch(dropout_mask_kernel<kVectorWidth>, blocks(a.rows, a.columns, kVectorWidth), kThreads, 0, stream, a);
  } else {
    launch(dropout_mask_kernel<1>, blocks(a.rows, a.columns, 1), kThreads, 0, stream, a);
  }
}

template void dropout_forward(const DropoutForward<float>&, Stream);
template void dropout_forward(const DropoutForward<c10::Half>&, Stream);
template void dropout_forward(const DropoutForward<c10::BFloat16>&, Stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
