// y = dropout(softmax(scale scores)) of the rows and columns within each sequence, 0 in its padding, and its backward:
//   P = exp(scale scores - logsumexp), t = dy / (1 - p) where kept and 0 where dropped;
//   dscores = scale P (t - sum(P t)).
// Neither P nor the mask is kept between forward and backward: both are computed again.
//
// Columns a multiple of 8 up to 1024: a group of 8, 16 or 32 lanes per row, so that short rows leave no lane idle. A
// lane holds its columns in registers, 8 at a time, and the row is read once. There is no barrier. Padding is written
// as 0 and not read. Other sizes: a warp per row, one column of a lane at a time, and the row is read twice. gridDim.y
// goes over sequences and heads, so that only blocks divide, not rows.
//
// Bytes per score with 2-byte activations: forward 4 (read, write), backward 6 (read scores and dy, write dscores).
// With dropout the random numbers cost about 11 instructions per score, of some 50. In SASS (cuobjdump, sm_90)
// forward's rows of four vectors have all four loads before the first use; ptxas moves backward's later loads to their
// use. Compiled for sm_90 and emulated; not measured on a GPU.
#include <cfloat>
#include <cmath>
#include <type_traits>

#include "cuda_ext/kernels/cuda_utils.cuh"
#include "cuda_ext/kernels/softmax_dropout.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kMaxMatrices = 2048;  // of the grid's y; with more sequences and heads, blocks take several

/// The sum over neighbouring kLanes lanes, the same bits in each.
template <int kLanes>
__device__ __forceinline__ float group_sum(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

template <int kLanes>
__device__ __forceinline__ float group_max(float value) {
#pragma unroll
  for (int lanes = kLanes / 2; lanes > 0; lanes /= 2) value = fmaxf(value, shuffle_xor(value, lanes));
  return value;
}

/// One row of scores.
struct Row {
  bool exists;
  int64_t index;        // among all rows
  int64_t count;        // number of its first columns that are not padding; 0 in a row of padding
  int64_t token;        // the row's key of dropout
  DropoutMask dropout;  // of its head
};

template <class T>
__device__ __forceinline__ Row find_row(const MaskedSoftmaxInput<T>& a, unsigned matrix, int64_t query) {
  const auto heads = static_cast<unsigned>(a.heads);
  const unsigned sequence = matrix / heads, head = matrix % heads;
  const int64_t begin = a.cu_seqlens[sequence], length = a.cu_seqlens[sequence + 1] - begin;
  Row row{.exists = query < a.queries,
          .index = matrix * a.queries + query,
          .count = 0,
          .token = begin + query,
          .dropout = a.dropout};
  if (row.exists && query < length) row.count = length < a.columns ? length : a.columns;
  row.dropout.site += head;
  return row;
}

/// The row's key of dropout; rows of padding have none.
__device__ __forceinline__ uint64_t key_of(const Row& row) {
  return row.count > 0 ? row_key(row.dropout, row.token) : 0;
}

/// The query of the thread's group.
template <int kLanes>
__device__ __forceinline__ int64_t query_of_group() {
  return static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
}

template <class T, int kLanes, int kPasses>
__global__ void __launch_bounds__(kThreads) masked_softmax_group_forward_kernel(MaskedSoftmaxForward<T> a) {
  constexpr int N = kVectorWidth;
  const int64_t columns = a.input.columns, start = static_cast<int64_t>(threadIdx.x % kLanes) * N;
  for (unsigned matrix = blockIdx.y; matrix < a.input.sequences * a.input.heads; matrix += gridDim.y) {
    const Row row = find_row(a.input, matrix, query_of_group<kLanes>());
    const uint64_t key = key_of(row);
    Vector<T, N> scores[kPasses] = {};
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t column = start + pass * kLanes * N;
      if (column < row.count) scores[pass] = load<N>(a.input.scores + row.index * columns + column);
    }
    float z[kPasses][N], largest = -FLT_MAX, sum = 0.0F;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const bool real = start + pass * kLanes * N + i < row.count;
        z[pass][i] = real ? scores[pass][i] * a.input.scale : -INFINITY;
        largest = fmaxf(largest, z[pass][i]);
      }
    }
    largest = group_max<kLanes>(largest);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        z[pass][i] = fast_exp(z[pass][i] - largest);
        sum += z[pass][i];
      }
    }
    sum = group_sum<kLanes>(sum);
    const float inverse = row.count > 0 ? 1.0F / sum : 0.0F;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t column = start + pass * kLanes * N;
      if (!row.exists || column >= columns) continue;
      const uint32_t kept = column < row.count ? kept_columns<N>(row.dropout, key, column) : 0U;
      float y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        y[i] = column + i < row.count ? z[pass][i] * inverse * mask_factor(row.dropout, kept, i) : 0.0F;
      }
      store_floats(a.y + row.index * columns + column, y);
    }
    if (row.exists && start == 0) a.logsumexp[row.index] = row.count > 0 ? largest + logf(sum) : -INFINITY;
  }
}

template <class T, int kLanes, int kPasses>
__global__ void __launch_bounds__(kThreads) masked_softmax_group_backward_kernel(MaskedSoftmaxBackward<T> a) {
  constexpr int N = kVectorWidth;
  const int64_t columns = a.input.columns, start = static_cast<int64_t>(threadIdx.x % kLanes) * N;
  for (unsigned matrix = blockIdx.y; matrix < a.input.sequences * a.input.heads; matrix += gridDim.y) {
    const Row row = find_row(a.input, matrix, query_of_group<kLanes>());
    const uint64_t key = key_of(row);
    const float logsumexp = row.count > 0 ? a.logsumexp[row.index] : 0.0F;
    Vector<T, N> scores[kPasses] = {}, dy[kPasses] = {};
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t column = start + pass * kLanes * N;
      if (column >= row.count) continue;
      scores[pass] = load<N>(a.input.scores + row.index * columns + column);
      dy[pass] = load<N>(a.dy + row.index * columns + column);
    }
    float probability[kPasses][N], t[kPasses][N], delta = 0.0F;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t column = start + pass * kLanes * N;
      const uint32_t kept = column < row.count ? kept_columns<N>(row.dropout, key, column) : 0U;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const bool real = column + i < row.count;
        probability[pass][i] = real ? fast_exp(scores[pass][i] * a.input.scale - logsumexp) : 0.0F;
        t[pass][i] = real ? dy[pass][i] * mask_factor(row.dropout, kept, i) : 0.0F;
        delta += probability[pass][i] * t[pass][i];
      }
    }
    delta = group_sum<kLanes>(delta);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int64_t column = start + pass * kLanes * N;
      if (!row.exists || column >= columns) continue;
      float dscores[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const bool real = column + i < row.count;
        dscores[i] = real ? a.input.scale * probability[pass][i] * (t[pass][i] - delta) : 0.0F;
      }
      store_floats(a.dscores + row.index * columns + column, dscores);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) masked_softmax_row_forward_kernel(MaskedSoftmaxForward<T> a) {
  const int64_t columns = a.input.columns;
  for (unsigned matrix = blockIdx.y; matrix < a.input.sequences * a.input.heads; matrix += gridDim.y) {
    const Row row = find_row(a.input, matrix, query_of_group<kWarpSize>());
    const T* scores = a.input.scores + row.index * columns;
    float mine = -FLT_MAX, sum = 0.0F;
    for (int64_t column = lane_of_thread(); column < row.count; column += kWarpSize) {
      const float z = to_float(scores[column]) * a.input.scale, now = fmaxf(mine, z);
      sum = sum * fast_exp(mine - now) + fast_exp(z - now);
      mine = now;
    }
    const float largest = group_max<kWarpSize>(mine);
    sum = group_sum<kWarpSize>(sum * fast_exp(mine - largest));
    if (!row.exists) continue;
    const float inverse = 1.0F / sum;
    for (int64_t column = lane_of_thread(); column < columns; column += kWarpSize) {
      float y = 0.0F;
      if (column < row.count) {
        const uint32_t kept = kept_columns<1>(row.dropout, key_of(row), column);
        y = fast_exp(to_float(scores[column]) * a.input.scale - largest) * inverse * mask_factor(row.dropout, kept, 0);
      }
      a.y[row.index * columns + column] = from_float<T>(y);
    }
    if (lane_of_thread() == 0) a.logsumexp[row.index] = row.count > 0 ? largest + logf(sum) : -INFINITY;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) masked_softmax_row_backward_kernel(MaskedSoftmaxBackward<T> a) {
  const int64_t columns = a.input.columns;
  for (unsigned matrix = blockIdx.y; matrix < a.input.sequences * a.input.heads; matrix += gridDim.y) {
    const Row row = find_row(a.input, matrix, query_of_group<kWarpSize>());
    const T *scores = a.input.scores + row.index * columns, *dy = a.dy + row.index * columns;
    const float logsumexp = row.count > 0 ? a.logsumexp[row.index] : 0.0F;
    const auto probability = [&](int64_t column) {
      return fast_exp(to_float(scores[column]) * a.input.scale - logsumexp);
    };
    const auto kept_gradient = [&](int64_t column) {
      return to_float(dy[column]) * mask_factor(row.dropout, kept_columns<1>(row.dropout, key_of(row), column), 0);
    };
    float delta = 0.0F;
    for (int64_t column = lane_of_thread(); column < row.count; column += kWarpSize) {
      delta += probability(column) * kept_gradient(column);
    }
    delta = group_sum<kWarpSize>(delta);
    if (!row.exists) continue;
    for (int64_t column = lane_of_thread(); column < columns; column += kWarpSize) {
      float dscore = 0.0F;
      if (column < row.count) dscore = a.input.scale * probability(column) * (kept_gradient(column) - delta);
      a.dscores[row.index * columns + column] = from_float<T>(dscore);
    }
  }
}

template <class T>
Grid blocks(const MaskedSoftmaxInput<T>& a, int lanes) {
  const int64_t matrices = a.sequences * a.heads;
  return {.x = ceil_divide(a.queries, kThreads / lanes),
          .y = static_cast<unsigned>(matrices < kMaxMatrices ? matrices : kMaxMatrices)};
}

/// Calls run(lanes of a row, vectors of a lane) if the fast path fits; returns true if it does.
template <class Run>
bool with_group(bool aligned, int64_t columns, const Run& run) {
  if (!aligned || columns % kVectorWidth != 0 || columns > 4 * kWarpSize * kVectorWidth) return false;
  constexpr std::integral_constant<int, kWarpSize> kWarp;
  constexpr std::integral_constant<int, 1> kOne;
  if (columns <= 8 * kVectorWidth) {
    run(std::integral_constant<int, 8>(), kOne);
  } else if (columns <= 16 * kVectorWidth) {
    run(std::integral_constant<int, 16>(), kOne);
  } else if (columns <= kWarpSize * kVectorWidth) {
    run(kWarp, kOne);
  } else if (columns <= 2 * kWarpSize * kVectorWidth) {
    run(kWarp, std::integral_constant<int, 2>());
  } else {
    run(kWarp, std::integral_constant<int, 4>());
  }
  return true;
}

}  // namespace

template <class T>
void masked_softmax_forward(const MaskedSoftmaxForward<T>& a, Stream stream) {
  if (a.input.sequences * a.input.heads * a.input.queries == 0) return;
  if (!with_group(all_aligned(a.input.scores, a.y), a.input.columns, [&](auto lanes, auto passes) {
        launch(masked_softmax_group_forward_kernel<T, lanes, passes>, blocks(a.input, lanes), kThreads, 0, stream, a);
      })) {
    launch(masked_softmax_row_forward_kernel<T>, blocks(a.input, kWarpSize), kThreads, 0, stream, a);
  }
}

template <class T>
void masked_softmax_backward(const MaskedSoftmaxBackward<T>& a, Stream stream) {
  if (a.input.sequences * a.input.heads * a.input.queries == 0) return;
  if (!with_group(all_aligned(a.input.scores, a.dy, a.dscores), a.input.columns, [&](auto lanes, auto passes) {
        launch(masked_softmax_group_backward_kernel<T, lanes, passes>, blocks(a.input, lanes), kThreads, 0, stream, a);
      })) {
    launch(masked_softmax_row_backward_kernel<T>, blocks(a.input, kWarpSize), kThreads, 0, stream, a);
  }
}

#define BERT_INSTANTIATE(T)                                                     \
  template void masked_softmax_forward(const MaskedSoftmaxForward<T>&, Stream); \
  template void masked_softmax_backward(const MaskedSoftmaxBackward<T>&, Stream);
BERT_FOR_TYPES(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
