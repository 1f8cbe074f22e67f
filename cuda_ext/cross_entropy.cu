// loss = mean over the rows of logsumexp(x) - x[label], over the first num_classes columns of each row of logits, and
// its backward, dx = (softmax(x) - onehot(label)) grad / rows, written over the logits; padding columns get 0.
//
// One block per row, which is read once: a thread carries the largest logit so far and the sum of exponentials below
// it, and the block joins these. Four vectors of a thread are in flight, and share one rescaling of the sum. Rows of an
// odd number of columns begin anywhere, so a row is cut into scalars up to the first aligned address, vectors of 8, and
// scalars after the last: there is no slow path. The mean is a second launch of one block that adds the rows' losses in
// a fixed order.
// A label outside of [0, num_classes) is never an address: the row's loss and its gradient are NaN.
//
// Bytes per logit of 2 bytes: forward 2 (read), backward 4 (read, write). One exponential per logit and pass, which at
// 80 % of an H200's bandwidth takes 60 % of what its special function units give.
//
// Versions
// 1. As above. Not measured on a GPU; compiled for sm_90, run under the emulator.
// Occupancy on sm_90: threads of a block, least share of the processor's 64 warps (a test compares it with nvcc's
// figures).
//   cross_entropy_forward_kernel 512 0.50
//   cross_entropy_mean_kernel 512 1.00
//   cross_entropy_backward_kernel 512 0.50
#include <cfloat>
#include <cmath>

#include "cuda_ext/cuda_utils.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / kWarpSize;
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

/// The sum of exp(x) over what was seen, as sum * exp(largest). -infinity counts for nothing; NaN goes through.
struct RunningSum {
  float largest = -FLT_MAX, sum = 0.0F;

  __device__ __forceinline__ void add(float x) {
    const float now = fmaxf(largest, x);
    sum = sum * fast_exp(largest - now) + fast_exp(x - now);
    largest = now;
  }
};

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

template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_forward_kernel(CrossEntropyForward<T> a) {
  BERT_SHARED(float, largest_of_warp, kWarps);
  BERT_SHARED(float, sum_of_warp, kWarps);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const T* logits = a.logits + row * a.columns;
    const Cut parts = cut(logits, a.num_classes);
    RunningSum mine;
    if (threadIdx.x < parts.scalars) mine.add(to_float(logits[parts.scalar_column(threadIdx.x)]));
    for (int64_t first = threadIdx.x; first < parts.vectors; first += kUnroll * kThreads) {
      Vector<T, kVectorWidth> x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < parts.vectors) {
          x[u] = load<kVectorWidth>(logits + parts.vector_column(first + u * kThreads));
        } else {
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) x[u].value[i] = from_float<T>(-INFINITY);
        }
      }
      float largest = mine.largest;
#pragma unroll
      for (int i = 0; i < kUnroll * kVectorWidth; ++i) {
        largest = fmaxf(largest, to_float(x[i / kVectorWidth].value[i % kVectorWidth]));
      }
      mine.sum *= fast_exp(mine.largest - largest);
      mine.largest = largest;
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        float sum = 0.0F;
#pragma unroll
        for (int i = 0; i < kVectorWidth; ++i) sum += fast_exp(to_float(x[u].value[i]) - largest);
        mine.sum += sum;
      }
    }
    const float largest = block_max(mine.largest, largest_of_warp);
    float sum[1] = {mine.sum * fast_exp(mine.largest - largest)};
    block_sum(sum, sum_of_warp);
    if (threadIdx.x == 0) {
      const float logsumexp = largest + logf(sum[0]);
      const int64_t label = a.labels[row];
      const bool valid = label >= 0 && label < a.num_classes;
      a.logsumexp[row] = logsumexp;
      a.row_loss[row] = valid ? logsumexp - to_float(logits[label]) : NAN;
    }
  }
}

/// mean[0] = the mean of value [count], 0 when there is none. One block.
__global__ void __launch_bounds__(kThreads) cross_entropy_mean_kernel(const float* value, int64_t count, float* mean) {
  BERT_SHARED(float, scratch, kWarps);
  float sum[1] = {0.0F};
  for (int64_t i = threadIdx.x; i < count; i += kThreads) sum[0] += value[i];
  block_sum(sum, scratch);
  if (threadIdx.x == 0) mean[0] = count > 0 ? sum[0] / static_cast<float>(count) : 0.0F;
}

template <class T>
__global__ void __launch_bounds__(kThreads) cross_entropy_backward_kernel(CrossEntropyBackward<T> a) {
  const float scale_of_all = a.grad[0] / static_cast<float>(a.rows);
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    T* logits = a.logits + row * a.columns;
    const Cut parts = cut(logits, a.columns);
    const int64_t label = a.labels[row];
    const float logsumexp = a.logsumexp[row];
    const float scale = label >= 0 && label < a.num_classes ? scale_of_all : NAN;
    const auto gradient = [&](T x, int64_t column) {
      const float probability = fast_exp(to_float(x) - logsumexp);
      return from_float<T>(column >= a.num_classes ? 0.0F
                                                   : (column == label ? probability - 1.0F : probability) * scale);
    };
    if (threadIdx.x < parts.scalars) {
      const int64_t column = parts.scalar_column(threadIdx.x);
      logits[column] = gradient(logits[column], column);
    }
    for (int64_t first = threadIdx.x; first < parts.vectors; first += kUnroll * kThreads) {
      Vector<T, kVectorWidth> x[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads < parts.vectors) {
          x[u] = load<kVectorWidth>(logits + parts.vector_column(first + u * kThreads));
        }
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        if (first + u * kThreads >= parts.vectors) continue;
        const int64_t column = parts.vector_column(first + u * kThreads);
        const bool has_label = label >= column && label < column + kVectorWidth;
        if (has_label || column + kVectorWidth > a.num_classes) {
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) x[u].value[i] = gradient(x[u].value[i], column + i);
        } else {
#pragma unroll
          for (int i = 0; i < kVectorWidth; ++i) {
            x[u].value[i] = from_float<T>(fast_exp(to_float(x[u].value[i]) - logsumexp) * scale);
          }
        }
        store(logits + column, x[u]);
      }
    }
  }
}

/// One for each row.
Grid blocks(int64_t rows) { return {.x = static_cast<unsigned>(rows < kMaxBlocks ? rows : kMaxBlocks)}; }

}  // namespace

template <class T>
void cross_entropy_forward(const CrossEntropyForward<T>& a, Stream stream) {
  if (a.rows > 0) launch(cross_entropy_forward_kernel<T>, blocks(a.rows), kThreads, 0, stream, a);
  const float* row_loss = a.row_loss;
  launch(cross_entropy_mean_kernel, {}, kThreads, 0, stream, row_loss, a.rows, a.loss);
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
