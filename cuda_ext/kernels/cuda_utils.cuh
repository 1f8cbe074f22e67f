// Sums over warps, blocks and partial results, in an order that never changes: deterministic without floating-point
// atomics. Up to 32 warps of a block share the rows of sum_columns_kernel. Compiled for sm_90 and emulated; not
// measured on a GPU.
#pragma once

#include "cuda_ext/kernels/launch.h"
#include "cuda_ext/scalar/math.h"
#include "cuda_ext/scalar/philox.h"

// X(T) for the dtypes of activations; X(T, P) for those of activations and parameters: launcher.h.
#define BERT_FOR_TYPES(X) X(float) X(c10::Half) X(c10::BFloat16)
#define BERT_FOR_TYPE_PAIRS(X) \
  X(float, float) X(c10::Half, c10::Half) X(c10::Half, float) X(c10::BFloat16, c10::BFloat16) X(c10::BFloat16, float)

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

inline constexpr int kVectorWidth = 8;  // columns per thread and access: 16 bytes of half, two philox counters

/// True if every pointer may be accessed in vectors. Null counts as aligned.
template <class... Pointers>
bool all_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}

inline int64_t at_most(int64_t value, int64_t most) { return value < most ? value : most; }
inline unsigned ceil_divide(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

namespace {

__device__ __forceinline__ int lane_of_thread() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ __forceinline__ int warp_of_thread() { return static_cast<int>(threadIdx.x) / kWarpSize; }

/// The sum over the warp, the same bits in every lane.
template <class V>
__device__ __forceinline__ V warp_sum(V value) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

/// The sums over the block of `warps` warps, the same bits in every thread; one barrier. scratch holds K words per
/// warp. It may be written again only after the next barrier, so callers in a loop alternate between two.
template <int kMostWarps, int K, class V>
__device__ __forceinline__ void block_sum(V (&values)[K], SharedPointer<V> scratch, int warps = kMostWarps) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    values[k] = warp_sum(values[k]);
    if (lane_of_thread() == 0) scratch[warp_of_thread() * K + k] = values[k];
  }
  sync_block();
#pragma unroll
  for (int k = 0; k < K; ++k) values[k] = V{};
#pragma unroll
  for (int warp = 0; warp < kMostWarps; ++warp) {
    if (warp % 4 == 0 && warp >= warps) break;  // one branch for four absent warps
    if (warp >= warps) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) values[k] += scratch[warp * K + k];
  }
}

/// True in the last of `blocks` blocks that take the ticket. The writes of the others are then visible to all its
/// threads. The ticket is 0 before the first and after the last of them. Two barriers; flag holds one word.
__device__ __forceinline__ bool comes_last(unsigned* ticket, int64_t blocks, SharedPointer<int> flag) {
  sync_block();
  if (threadIdx.x == 0) {
    const bool last = static_cast<int64_t>(take_ticket(ticket)) + 1 == blocks;
    if (last) *ticket = 0;
    flag[0] = last ? 1 : 0;
  }
  sync_block();
  const int last = flag[0];
  return last != 0;
}

/// The key of a row; 0 where nothing is dropped.
__device__ __forceinline__ uint64_t row_key(const DropoutMask& mask, int64_t row) {
  return mask.keys != nullptr ? static_cast<uint64_t>(mask.keys[row]) : 0;
}

/// Bit i: column + i is kept of the row with this key. column is a multiple of N, or N is 1.
template <int N>
__device__ __forceinline__ uint32_t keep_bits(const DropoutMask& mask, uint64_t key, int64_t column) {
  const auto block = static_cast<uint32_t>(column / 4);
  uint32_t bits = 0;
  if constexpr (N == 1) {
    const Philox4 words = dropout_words(mask.seed, key, mask.site, block);
    const auto i = static_cast<uint32_t>(column % 4);
    const uint32_t word = i == 0 ? words.word[0] : i == 1 ? words.word[1] : i == 2 ? words.word[2] : words.word[3];
    bits = word >= mask.threshold ? 1U : 0U;
  } else {
#pragma unroll
    for (int half = 0; half < N / 4; ++half) {
      const Philox4 words = dropout_words(mask.seed, key, mask.site, block + static_cast<uint32_t>(half));
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // (not a shifted comparison, which g++ 12 miscompiles under UBSan)
        if (words.word[i] >= mask.threshold) bits |= 1U << (4 * half + i);
      }
    }
  }
  return bits;
}

/// keep_bits() of the thread's columns; all columns if nothing is dropped.
template <int N>
__device__ __forceinline__ uint32_t kept_columns(const DropoutMask& mask, uint64_t key, int64_t column) {
  return mask.keys != nullptr ? keep_bits<N>(mask, key, column) : ~0U;
}

/// The factor of element i. A factor keeps a NaN that is dropped.
__device__ __forceinline__ float mask_factor(const DropoutMask& mask, uint32_t kept, int i) {
  return (kept >> i & 1U) != 0 ? mask.scale : 0.0F;
}

template <class T, int N>
__device__ __forceinline__ void load_floats(const T* pointer, float (&values)[N]) {
  const Vector<T, N> vector = load<N>(pointer);
#pragma unroll
  for (int i = 0; i < N; ++i) values[i] = vector[i];
}

/// Rounds to nearest even.
template <class T, int N>
__device__ __forceinline__ void store_floats(T* pointer, const float (&values)[N]) {
  store(pointer, pack<T>(values));
}

template <class P>
struct ColumnSums {
  static constexpr int kOutputs = 3;
  const float* partial;  // [blocks, outputs, columns]
  int64_t blocks, columns;
  P* output[kOutputs];       // [columns] each, or null
  int64_t block_stride = 0;  // from one block's sums to the next; 0: outputs * columns
};

inline constexpr int kSumColumns = kWarpSize, kMaxSumGroups = 32;  // a group of a block's sums: one warp
inline constexpr int64_t kSumLoads = 4;  // least loads of a thread before another group is added

/// output[o][c] = the sum over b of partial[b][o][c]. blockIdx.y is o. Warp w of W adds up the rows w, w + W, ...
template <class P>
__global__ void __launch_bounds__(kMaxSumGroups* kWarpSize) sum_columns_kernel(ColumnSums<P> a) {
  BERT_SHARED(float, group_sum, kMaxSumGroups* kSumColumns);
  const int groups = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kSumColumns + lane_of_thread();
  const int64_t stride = a.block_stride > 0 ? a.block_stride : a.columns * gridDim.y;
  P* output = blockIdx.y == 0 ? a.output[0] : blockIdx.y == 1 ? a.output[1] : a.output[2];
  float sum = 0.0F;
  if (column < a.columns) {
    const float* partial = a.partial + blockIdx.y * a.columns + column;
#pragma unroll 8
    for (int64_t block = warp_of_thread(); block < a.blocks; block += groups) sum += partial[block * stride];
  }
  group_sum[static_cast<int>(threadIdx.x)] = sum;
  sync_block();
  if (warp_of_thread() == 0 && column < a.columns && output != nullptr) {
    for (int group = 1; group < groups; ++group) sum += group_sum[group * kSumColumns + lane_of_thread()];
    output[column] = from_float<P>(sum);
  }
}

/// The number of groups depends on that of the partial sums alone, and so does the order of the sum.
template <class P>
void sum_columns(const ColumnSums<P>& sums, int outputs, Stream stream) {
  const unsigned groups = ceil_divide(sums.blocks, kSumLoads);
  const unsigned threads = kWarpSize * (groups < 1 ? 1 : groups < kMaxSumGroups ? groups : kMaxSumGroups);
  launch(sum_columns_kernel<P>, {.x = ceil_divide(sums.columns, kSumColumns), .y = static_cast<unsigned>(outputs)},
         threads, 0, stream, sums);
}

}  // namespace
}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
