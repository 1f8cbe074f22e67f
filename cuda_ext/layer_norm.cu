// y = LayerNorm(z) gamma + beta, z = dropout(x + bias) + residual (bias, dropout and residual are each optional), and
// its backward:
//   xhat = (z - mean) rstd, g = dy gamma, dz = rstd (g - mean(g) - xhat mean(g xhat));
//   dresidual = dz, dx = dz / (1 - p) where kept and 0 where dropped; dgamma = sum dy xhat, dbeta = sum dy, dbias = sum
//   dx.
//
// Forward, columns a multiple of 8 up to 1024: one warp per row; a lane holds its columns in registers, 8 at a time,
// and the row is read once. No barrier; all loads of a row are in flight together. Backward, columns a multiple of 8 up
// to 2048: one block per row, one thread per 8 columns, whose sums of dgamma, dbeta and dbias stay in registers while
// the block walks down its rows (the next row is loaded before this one is computed). One barrier per row. Each block
// writes its sums to the workspace, and sum_columns adds these up. One wave of blocks.
// Other sizes: one block per row, which is read again for every statistic; backward keeps its sums in the workspace.
//
// z is not kept between forward and backward, nor the mask: both are computed again.
// Bytes per element with 2-byte activations: forward 6 (read x and residual, write y), backward 10 (read x, residual
// and dy, write dx and dresidual); plain layer norm 4 and 6. The partial sums of backward: 24 bytes per column and
// block, at most kMaxBackwardBlocks.
//
// Versions
// 1. As above. Not measured on a GPU; compiled for sm_90, run under the emulator.
// Occupancy on sm_90: threads of a block, least share of the processor's 64 warps (a test compares it with nvcc's
// figures).
//   layer_norm_warp_forward_kernel 128 0.31
//   layer_norm_row_backward_kernel 256 0.25
//   layer_norm_block_forward_kernel 256 0.75
//   layer_norm_block_backward_kernel 256 0.50
#include <type_traits>

#include "cuda_ext/cuda_utils.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kWarpThreads = 128, kRowsPerBlock = kWarpThreads / kWarpSize;  // one warp per row
constexpr int kColumnsPerPass = kWarpSize * kVectorWidth, kMaxPasses = 4;
constexpr int kBlockThreads = 256, kMaxWarps = kBlockThreads / kWarpSize;  // one block per row
constexpr int kSums = 3;                                                   // dgamma, dbeta, dbias
constexpr int64_t kBackwardThreads = 132 * 16 * kWarpSize;  // 16 warps on each of an H200's 132 processors
constexpr int64_t kMaxRowBlocks = 1 << 30;

int64_t at_most(int64_t blocks, int64_t most) { return blocks < most ? blocks : most; }

/// Threads of a backward block: enough for 8 columns each, up to kBlockThreads.
unsigned backward_threads(int64_t columns) {
  return static_cast<unsigned>(at_most(kWarpSize * ceil_divide(columns, kColumnsPerPass), kBlockThreads));
}

/// The same on every device, so that results are.
unsigned backward_blocks(int64_t rows, int64_t columns) {
  return static_cast<unsigned>(at_most(rows, kBackwardThreads / backward_threads(columns)));
}

/// z of N columns from their x and residual. Returns which are kept, bit by bit.
template <class T, class P, int N>
__device__ __forceinline__ uint32_t add_up(const LayerNormInput<T, P>& a, const Vector<T, N>& x,
                                           const Vector<T, N>& residual, int64_t row, int64_t column, float (&z)[N]) {
  uint32_t kept = ~0U;
#pragma unroll
  for (int i = 0; i < N; ++i) z[i] = to_float(x.value[i]);
  if (a.bias != nullptr) {
    const Vector<P, N> bias = load<N>(a.bias + column);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] += to_float(bias.value[i]);
  }
  if (a.dropout.keys != nullptr) {
    kept = keep_bits<N>(a.dropout, row, column);
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = (kept >> i & 1U) != 0 ? z[i] * a.dropout.scale : 0.0F;
  }
  if (a.residual != nullptr) {
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] += to_float(residual.value[i]);
  }
  return kept;
}

/// The same, with x and residual read here.
template <int N, class T, class P>
__device__ __forceinline__ uint32_t read_z(const LayerNormInput<T, P>& a, int64_t row, int64_t column, float (&z)[N]) {
  const int64_t at = row * a.columns + column;
  Vector<T, N> residual = {};
  if (a.residual != nullptr) residual = load<N>(a.residual + at);
  return add_up(a, load<N>(a.x + at), residual, row, column, z);
}

/// y of N columns.
template <class T, class P, int N>
__device__ __forceinline__ void write_y(const LayerNormForward<T, P>& a, int64_t row, int64_t column,
                                        const float (&z)[N], float mean, float rstd) {
  const Vector<P, N> gamma = load<N>(a.gamma + column), beta = load<N>(a.beta + column);
  Vector<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    y.value[i] = from_float<T>((z[i] - mean) * rstd * to_float(gamma.value[i]) + to_float(beta.value[i]));
  }
  store(a.y + row * a.input.columns + column, y);
}

template <class T, class P, int kPasses>
__global__ void __launch_bounds__(kWarpThreads) layer_norm_warp_forward_kernel(LayerNormForward<T, P> a) {
  constexpr int N = kVectorWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + warp_of_thread();
  const int64_t columns = row < a.input.rows ? a.input.columns : 0;  // the last block's idle warps have no columns
  const int64_t start = lane_of_thread() * N;
  Vector<T, N> x[kPasses] = {}, residual[kPasses] = {};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t column = start + pass * kColumnsPerPass;
    if (column < columns) x[pass] = load<N>(a.input.x + row * columns + column);
    if (column < columns && a.input.residual != nullptr) {
      residual[pass] = load<N>(a.input.residual + row * columns + column);
    }
  }
  float z[kPasses][N], sum = 0.0F;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t column = start + pass * kColumnsPerPass;
    if (column >= columns) continue;
    add_up(a.input, x[pass], residual[pass], row, column, z[pass]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += z[pass][i];
  }
  const float inverse = 1.0F / static_cast<float>(a.input.columns), mean = warp_sum(sum) * inverse;
  float squares = 0.0F;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (start + pass * kColumnsPerPass >= columns) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (z[pass][i] - mean) * (z[pass][i] - mean);
  }
  const float rstd = reciprocal_sqrt(warp_sum(squares) * inverse + a.eps);
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t column = start + pass * kColumnsPerPass;
    if (column < columns) write_y(a, row, column, z[pass], mean, rstd);
  }
  if (lane_of_thread() == 0 && columns > 0) a.mean[row] = mean, a.rstd[row] = rstd;
}

template <class T, class P, int N>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_block_forward_kernel(LayerNormForward<T, P> a) {
  BERT_SHARED(float, scratch, 2 * kMaxWarps);
  const int64_t columns = a.input.columns, start = static_cast<int64_t>(threadIdx.x) * N;
  const float inverse = 1.0F / static_cast<float>(columns);
  for (int64_t row = blockIdx.x; row < a.input.rows; row += gridDim.x) {
    float z[N], sum[1] = {}, squares[1] = {};
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.input, row, column, z);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[0] += z[i];
    }
    block_sum(sum, scratch);
    const float mean = sum[0] * inverse;
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.input, row, column, z);
#pragma unroll
      for (int i = 0; i < N; ++i) squares[0] += (z[i] - mean) * (z[i] - mean);
    }
    block_sum(squares, scratch + kMaxWarps);
    const float rstd = reciprocal_sqrt(squares[0] * inverse + a.eps);
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.input, row, column, z);
      write_y(a, row, column, z, mean, rstd);
    }
    if (threadIdx.x == 0) a.mean[row] = mean, a.rstd[row] = rstd;
  }
}

/// dx and dresidual of N columns from dz; dz becomes dx.
template <class T, class P, int N>
__device__ __forceinline__ void write_dx(const LayerNormBackward<T, P>& a, int64_t row, int64_t column, uint32_t kept,
                                         float (&dz)[N]) {
  Vector<T, N> dx, dresidual;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    dresidual.value[i] = from_float<T>(dz[i]);
    dz[i] = (kept >> i & 1U) != 0 ? dz[i] * a.input.dropout.scale : 0.0F;
    dx.value[i] = from_float<T>(dz[i]);
  }
  store(a.dx + row * a.input.columns + column, dx);
  if (a.dresidual != nullptr) store(a.dresidual + row * a.input.columns + column, dresidual);
}

template <int N>
__device__ __forceinline__ void write_sums(float* pointer, const float (&sums)[N]) {
  Vector<float, N> vector;
#pragma unroll
  for (int i = 0; i < N; ++i) vector.value[i] = sums[i];
  store(pointer, vector);
}

/// What backward reads of a row, 8 columns of it.
template <class T>
struct RowVectors {
  Vector<T, kVectorWidth> x = {}, residual = {}, dy = {};
};

template <class T, class P>
__device__ __forceinline__ RowVectors<T> read_row(const LayerNormBackward<T, P>& a, int64_t row, int64_t column) {
  RowVectors<T> vectors;
  if (row >= a.input.rows || column >= a.input.columns) return vectors;
  const int64_t at = row * a.input.columns + column;
  vectors.x = load<kVectorWidth>(a.input.x + at);
  if (a.input.residual != nullptr) vectors.residual = load<kVectorWidth>(a.input.residual + at);
  vectors.dy = load<kVectorWidth>(a.dy + at);
  return vectors;
}

template <class T, class P>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_row_backward_kernel(LayerNormBackward<T, P> a) {
  constexpr int N = kVectorWidth;
  BERT_SHARED(float, scratch, 2 * 2 * kMaxWarps);
  const int64_t columns = a.input.columns, column = static_cast<int64_t>(threadIdx.x) * N;
  const bool inside = column < columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  Vector<P, N> gamma = {};
  if (inside) gamma = load<N>(a.gamma + column);
  float dgamma[N] = {}, dbeta[N] = {}, dbias[N] = {};
  int turn = 0;
  RowVectors<T> next = read_row(a, blockIdx.x, column);
  for (int64_t row = blockIdx.x; row < a.input.rows; row += gridDim.x, turn ^= 1) {
    const RowVectors<T> now = next;
    next = read_row(a, row + gridDim.x, column);
    const float mean = a.mean[row], rstd = a.rstd[row];
    float xhat[N] = {}, sums[2] = {};
    uint32_t kept = 0;
    if (inside) {
      kept = add_up(a.input, now.x, now.residual, row, column, xhat);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat[i] = (xhat[i] - mean) * rstd;
        const float dy = to_float(now.dy.value[i]), g = dy * to_float(gamma.value[i]);
        dgamma[i] += dy * xhat[i];
        dbeta[i] += dy;
        sums[0] += g;
        sums[1] += g * xhat[i];
      }
    }
    block_sum(sums, scratch + turn * 2 * kMaxWarps);
    if (inside) {
      float dz[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float g = to_float(now.dy.value[i]) * to_float(gamma.value[i]);
        dz[i] = rstd * (g - sums[0] * inverse - xhat[i] * (sums[1] * inverse));
      }
      write_dx(a, row, column, kept, dz);
#pragma unroll
      for (int i = 0; i < N; ++i) dbias[i] += dz[i];
    }
  }
  if (inside) {
    float* const partial = a.workspace + blockIdx.x * kSums * columns + column;
    write_sums(partial, dgamma);
    write_sums(partial + columns, dbeta);
    write_sums(partial + 2 * columns, dbias);
  }
}

template <class T, class P, int N>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_block_backward_kernel(LayerNormBackward<T, P> a) {
  BERT_SHARED(float, scratch, 2 * 2 * kMaxWarps);
  int turn = 0;
  const int64_t columns = a.input.columns, start = static_cast<int64_t>(threadIdx.x) * N;
  const float inverse = 1.0F / static_cast<float>(columns);
  float* partial = a.workspace + blockIdx.x * kSums * columns;  // this thread's columns of it are its own
  for (int64_t row = blockIdx.x; row < a.input.rows; row += gridDim.x, turn ^= 1) {
    const float mean = a.mean[row], rstd = a.rstd[row];
    const bool first = row == blockIdx.x;
    float xhat[N], sums[2] = {};
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.input, row, column, xhat);
      const Vector<T, N> dy = load<N>(a.dy + row * columns + column);
      const Vector<P, N> gamma = load<N>(a.gamma + column);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float g = to_float(dy.value[i]) * to_float(gamma.value[i]);
        sums[0] += g;
        sums[1] += g * (xhat[i] - mean) * rstd;
      }
    }
    block_sum(sums, scratch + turn * 2 * kMaxWarps);
    const float mean_g = sums[0] * inverse, mean_gx = sums[1] * inverse;
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      const uint32_t kept = read_z(a.input, row, column, xhat);
      const Vector<T, N> dy = load<N>(a.dy + row * columns + column);
      const Vector<P, N> gamma = load<N>(a.gamma + column);
      float dz[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat[i] = (xhat[i] - mean) * rstd;
        dz[i] = rstd * (to_float(dy.value[i]) * to_float(gamma.value[i]) - mean_g - xhat[i] * mean_gx);
      }
      write_dx(a, row, column, kept, dz);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float gradient = to_float(dy.value[i]);
        float* const sum = partial + column + i;
        sum[0] = (first ? 0.0F : sum[0]) + gradient * xhat[i];
        sum[columns] = (first ? 0.0F : sum[columns]) + gradient;
        sum[2 * columns] = (first ? 0.0F : sum[2 * columns]) + dz[i];
      }
    }
  }
}

/// Calls run(the number of passes) where the fast path fits: returns whether it did.
template <class Run>
bool with_passes(bool aligned, int64_t columns, const Run& run) {
  if (!aligned || columns % kVectorWidth != 0 || columns > kMaxPasses * kColumnsPerPass) return false;
  switch (ceil_divide(columns, kColumnsPerPass)) {
    case 1:
      run(std::integral_constant<int, 1>());
      break;
    case 2:
      run(std::integral_constant<int, 2>());
      break;
    case 3:
      run(std::integral_constant<int, 3>());
      break;
    default:
      run(std::integral_constant<int, kMaxPasses>());
  }
  return true;
}

}  // namespace

int64_t layer_norm_backward_workspace(int64_t rows, int64_t columns) {
  return backward_blocks(rows, columns) * kSums * columns;
}

template <class T, class P>
void layer_norm_forward(const LayerNormForward<T, P>& a, Stream stream) {
  const LayerNormInput<T, P>& input = a.input;
  if (input.rows == 0 || input.columns == 0) return;
  const bool aligned = all_aligned(input.x, input.bias, input.residual, a.gamma, a.beta, a.y);
  if (with_passes(aligned, input.columns, [&](auto passes) {
        launch(layer_norm_warp_forward_kernel<T, P, passes>, {.x = ceil_divide(input.rows, kRowsPerBlock)},
               kWarpThreads, 0, stream, a);
      })) {
    return;
  }
  const Grid grid{.x = static_cast<unsigned>(at_most(input.rows, kMaxRowBlocks))};
  if (aligned && input.columns % kVectorWidth == 0) {
    launch(layer_norm_block_forward_kernel<T, P, kVectorWidth>, grid, kBlockThreads, 0, stream, a);
  } else {
    launch(layer_norm_block_forward_kernel<T, P, 1>, grid, kBlockThreads, 0, stream, a);
  }
}

template <class T, class P>
void layer_norm_backward(const LayerNormBackward<T, P>& a, Stream stream) {
  const LayerNormInput<T, P>& input = a.input;
  if (input.columns == 0) return;
  const Grid grid{.x = backward_blocks(input.rows, input.columns)};
  const unsigned threads = backward_threads(input.columns);
  const bool vectors = input.columns % kVectorWidth == 0 &&
                       all_aligned(input.x, input.bias, input.residual, a.gamma, a.dy, a.dx, a.dresidual, a.workspace);
  if (input.rows == 0) {
  } else if (vectors && input.columns <= kVectorWidth * kBlockThreads) {
    launch(layer_norm_row_backward_kernel<T, P>, grid, threads, 0, stream, a);
  } else if (vectors) {
    launch(layer_norm_block_backward_kernel<T, P, kVectorWidth>, grid, threads, 0, stream, a);
  } else {
    launch(layer_norm_block_backward_kernel<T, P, 1>, grid, threads, 0, stream, a);
  }
  sum_columns<P>(
      {.partial = a.workspace, .blocks = grid.x, .columns = input.columns, .output = {a.dgamma, a.dbeta, a.dbias}},
      kSums, stream);
}

#define BERT_INSTANTIATE(T, P)                                             \
  template void layer_norm_forward(const LayerNormForward<T, P>&, Stream); \
  template void layer_norm_backward(const LayerNormBackward<T, P>&, Stream);
BERT_INSTANTIATE(float, float)
BERT_INSTANTIATE(c10::Half, c10::Half)
BERT_INSTANTIATE(c10::Half, float)
BERT_INSTANTIATE(c10::BFloat16, c10::BFloat16)
BERT_INSTANTIATE(c10::BFloat16, float)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
