// loss = mean over the rows of logsumexp(x) - x[label], over the first num_classes columns of each row of logits, and
// its backward, dx = (softmax(x) - onehot(label)) grad / rows, written over the logits. Padding columns get 0.
//
// One block reads a row once. A thread carries the largest logit so far and the sum of exponentials below it; the block
// joins these. Four vectors of a thread are in flight and share one rescaling of the sum. Logits must be at most 2.3e38
// in size, so that they are finite times log2 e. Rows of an odd number of columns begin at any address. So a row is cut
// into scalars up to the first aligned address, vectors of 8, and the scalars after the last vector; there is no slow
// path. A second launch of one block adds the losses of the rows in a fixed order.
// A label outside of [0, num_classes) is never used as an address: the loss of its row and the gradient are NaN.
//
// Bytes per logit of 2 bytes: forward 2 (read), backward 4 (read, write). One exponential per logit and pass takes 60 %
// of an H200's special function units at 80 % of its bandwidth. The label is read before the row, and its logit before
// the block adds up. Forward's loop body for 32 logits of bf16 has 209 instructions (SASS, sm_90); at 88 % of an H200's
// 4.8 TB/s its SMs have time for 14 per logit. Expected: 90 % of a copy's bandwidth in both passes. On sm_80
// forward of bf16 spills 8 bytes of 48 registers. Compiled for sm_90 and emulated; not measured on a GPU.
#include <cfloat>
#include <cmath>

#include "cuda_ext/kernels/cross_entropy.h"
#include "cuda_ext/kernels/cuda_utils.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr int kForwardBlocks = 5;  // on an SM: 48 registers for a thread
constexpr int kMeanThreads = 1024, kMeanWarps = kMeanThreads / kWarpSize;
constexpr int kUnroll = 4;  // vectors of a thread in flight
constexpr int64_t kMaxBlocks = 1 << 30;

/// A row of any address: scalars on both sides of aligned vectors.
struct Cut {
  int64_t head, vectors, scalars;  // scalars: head, and those after the vectors; fewer than 16

  /// The column of a scalar.
  [[nodiscard]] __device__ __forceinline__ int64_t scalar_column(int64_t i) const {
    return i < head ? i : i + vectors * kVectorWidth;
  }
  [[nodiscard]] __device__ __forceinline__ int64_t vector_column(int64_t i) const { return head + i * kVectorWidth; }
};

template <class T>
__device__ __forceinline__ Cut cut(const T* row, int64_t columns) {
  constexpr auto kAligned = static_cast<int64_t>(kVectorBytes / sizeof(T));
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) / sizeof(T) % kAligned);
  const int64_t unaligned = past == 0 ? 0 : kAligned - past, head = unaligned < columns ? unaligned : columns;
  const int64_t vectors = (columns - head) / kVectorWidth;
  return {head, vectors, columns - vectors * kVectorWidth};
}

/// The largest logit times log2 e, which is subtracted from the row's. Its rounding error is one common factor of the
/// row.
__device__ __forceinline__ float shift_of(float largest) { return rounded_product(largest, kLog2E); }

/// 2^(x log2 e - shift): a fused product and sum, and an exponential.
__device__ __forceinline__ float shifted_exp(float x, float shift) { return fast_exp2(fmaf(x, kLog2E, -shift)); }

constexpr float kLeast = -0.5F * FLT_MAX;  // times log2 e it is finite

/// A word of elements that are -infinity.
template <class T>
constexpr uint32_t kNothing = 0xFF800000;
template <>
constexpr uint32_t kNothing<c10::Half> = 0xFC00FC00;
template <>
constexpr uint32_t kNothing<c10::BFloat16> = 0xFF80FF80;

/// The largest over the block; one barrier.
__device__ __forceinline__ float block_max(float value, SharedPointer<float> scratch) {
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) value = fmaxf(value, shuffle_xor(value, lanes));
  if (lane_of_thread() == 0) scratch[warp_of_thread()] = value;
  sync_block();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) {
    const float other = scratch[warp];
    value = fmaxf(value, other);
  }
  return value;
}

/// The rows that take part.
__device__ __forceinline__ int64_t number_of_rows(const float* counted, int64_t rows) {
  const int64_t count = counted == nullptr ? rows : static_cast<int64_t>(counted[0]);
  return count < rows ? count : rows;
}

template <class T>
__global__ void __launch_bounds__(kThreads, kForwardBlocks) cross_entropy_forward_kernel(CrossEntropyForward<T> a) {
  BERT_SHARED(float, largest_of_warp, kWarps);
  BERT_SHARED(float, sum_of_warp, kWarps);
  for (int64_t row = blockIdx.x; row < number_of_rows(a.counted, a.rows); row += gridDim.x) {
    const T* logits = a.logits + row * a.columns;
    const Cut parts = cut(logits, a.num_classes);
    const int64_t label = a.labels[row];  // early, so that it has arrived when it is needed
    const bool valid = label >= 0 && label < a.num_classes;
    // The sum of e^x over this thread's logits, as sum * e^largest. -infinity adds nothing; NaN is passed on.
    float largest = kLeast, shift = shift_of(kLeast), sum[1] = {0.0F};
    constexpr float kNone[] = {-INFINITY};
    Vector<T, 1> scalar = pack<T>(kNone);  // loaded while the vectors are
    if (threadIdx.x < parts.scalars) scalar = load<1>(logits + parts.scalar_column(threadIdx.x));
    for (int64_t first = threadIdx.x; first < parts.vectors; first += kUnroll * kThreads) {
      Vector<T, kVectorWidth> x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < parts.vectors) {
          x[u] = load<kVectorWidth>(logits + parts.vector_column(first + u * kThreads));
        } else {
#pragma unroll
          for (int i = 0; i < x[u].kWords; ++i) x[u].word[i] = kNothing<T>;
        }
      }
#pragma unroll
      for (int i = 0; i < kUnroll * kVectorWidth; ++i) largest = fmaxf(largest, x[i / kVectorWidth][i % kVectorWidth]);
      const float before = shift;
      shift = shift_of(largest);
      sum[0] *= fast_exp2(before - shift);  // 1 if they are equal
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float part = 0.0F;
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) part += shifted_exp(x[u][i], shift);
        sum[0] += part;
      }
    }
    const float before = shift;
    largest = fmaxf(largest, scalar[0]);
    shift = shift_of(largest);
    sum[0] = sum[0] * fast_exp2(before - shift) + shifted_exp(scalar[0], shift);
    float target = NAN;  // its logit is loaded while the block adds up
    if (threadIdx.x == 0 && valid) target = to_float(logits[label]);
    const float largest_of_row = block_max(largest, largest_of_warp);
    sum[0] *= fast_exp2(shift - shift_of(largest_of_row));
    block_sum<kWarps>(sum, sum_of_warp);
    if (threadIdx.x == 0) {
      const float logsumexp = largest_of_row + logf(sum[0]);
      a.logsumexp[row] = logsumexp;
      a.row_loss[row] = logsumexp - target;
    }
  }
}

/// mean[0] = the mean of the first values that count, 0 without any. One block.
__global__ void __launch_bounds__(kMeanThreads)
    cross_entropy_mean_kernel(const float* value, const float* counted, int64_t rows, float* mean) {
  BERT_SHARED(float, scratch, kMeanWarps);
  const int64_t count = number_of_rows(counted, rows);
  float sum[1] = {0.0F};
  for (int64_t i = threadIdx.x; i < count; i += kMeanThreads) sum[0] += value[i];
  block_sum<kMeanWarps>(sum, scratch);
  if (threadIdx.x == 0) mean[0] = count > 0 ? sum[0] / static_cast<float>(count) : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_backward_kernel(CrossEntropyBackward<T> a) {
  constexpr int kInFlight = sizeof(T) == 2 ? kUnroll : kUnroll / 2;  // vectors: 64 bytes of a thread
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    T* logits = a.logits + row * a.columns;
    const Cut parts = cut(logits, a.columns);
    const int64_t label = a.labels[row];
    // A row that takes no part has probabilities of 0, and the factor 0 for its label.
    const int64_t counted = number_of_rows(a.counted, a.rows);
    const bool counts = row < counted, valid = label >= 0 && label < a.num_classes;
    const float shift = counts ? a.logsumexp[row] * kLog2E : INFINITY;
    const float scale = !counts ? 0.0F : valid ? a.grad[0] / static_cast<float>(counted) : NAN;
    const auto gradient = [&](float x, int64_t column) {
      const float probability = shifted_exp(x, shift);
      return column >= a.num_classes ? 0.0F : (column == label ? probability - 1.0F : probability) * scale;
    };
    const bool has_scalar = threadIdx.x < parts.scalars;
    const int64_t scalar_column = has_scalar ? parts.scalar_column(threadIdx.x) : 0;
    Vector<T, 1> scalar = {};  // loaded while the vectors are
    if (has_scalar) scalar = load<1>(logits + scalar_column);
    for (int64_t first = threadIdx.x; first < parts.vectors; first += kInFlight * kThreads) {
      Vector<T, kVectorWidth> x[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (first + u * kThreads < parts.vectors) {
          x[u] = load<kVectorWidth>(logits + parts.vector_column(first + u * kThreads));
        }
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (first + u * kThreads >= parts.vectors) continue;
        const int64_t column = parts.vector_column(first + u * kThreads);
        const bool has_label = label >= column && label < column + kVectorWidth;
        float dx[kVectorWidth];
        if (has_label || column + kVectorWidth > a.num_classes) {
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) dx[i] = gradient(x[u][i], column + i);
        } else {
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) dx[i] = shifted_exp(x[u][i], shift) * scale;
        }
        store_floats(logits + column, dx);
      }
    }
    if (has_scalar) logits[scalar_column] = from_float<T>(gradient(scalar[0], scalar_column));
  }
}

/// One for each row.
Grid blocks(int64_t rows) { return {.x = static_cast<unsigned>(at_most(rows, kMaxBlocks))}; }

}  // namespace

template <class T>
void cross_entropy_forward(const CrossEntropyForward<T>& a, Stream stream) {
  if (a.rows > 0) launch(cross_entropy_forward_kernel<T>, blocks(a.rows), kThreads, 0, stream, a);
  const float* row_loss = a.row_loss;
  launch(cross_entropy_mean_kernel, {}, kMeanThreads, 0, stream, row_loss, a.counted, a.rows, a.loss);
}

template <class T>
void cross_entropy_backward(const CrossEntropyBackward<T>& a, Stream stream) {
  if (a.rows > 0) launch(cross_entropy_backward_kernel<T>, blocks(a.rows), kThreads, 0, stream, a);
}

#define BERT_INSTANTIATE(T)                                                   \
  template void cross_entropy_forward(const CrossEntropyForward<T>&, Stream); \
  template void cross_entropy_backward(const CrossEntropyBackward<T>&, Stream);
BERT_FOR_TYPES(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
