// Shared by the kernels that normalise rows: y = (z - mean) rstd gamma + beta and its backward,
//   xhat = (z - mean) rstd, g = dy gamma, dz = rstd (g - mean(g) - xhat mean(g xhat));
//   dgamma = sum dy xhat, dbeta = sum dy.
// A RowSource has the parts of a row z and the destination of its gradient. layer_norm.cu and embedding.cu have one
// each. An SM is a streaming multiprocessor.
//
// Forward, columns a multiple of 8 up to 1024: one warp per row. A lane holds its columns in registers, 8 at a time,
// and the row is read once. There is no barrier, and all loads of a row are in flight together: in SASS (cuobjdump,
// sm_90), four passes of bf16 have all eight LDG.E.128 of x and residual before the first use of one. The mask of the
// whole row is drawn behind the loads, in one go.
// Backward, columns a multiple of 8 up to 2048: one block per row, one thread per 8 columns. The thread keeps its sums
// over rows in registers while the block walks down its rows. The next row, its mean, rstd and key are loaded before
// the current row is computed, and the next row's location one row earlier still; SASS first uses them behind the
// barrier. Behind the last row the last row is read again, from the cache. One barrier per row. Each block writes its
// sums to the workspace, and sum_columns adds these up. One wave of blocks.
// Other sizes: one block per row, which is read again for every statistic; backward keeps its sums in the workspace.
// Neither z nor the mask is kept between forward and backward: both are computed again.
#pragma once

#include <concepts>
#include <type_traits>

#include "cuda_ext/kernels/cuda_utils.cuh"
#include "cuda_ext/kernels/layer_norm.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kWarpThreads = 128, kRowsPerBlock = kWarpThreads / kWarpSize;  // one warp per row
/// Number of these blocks on an SM, for fp32 and for other types. 0: as ptxas chooses, 72 registers for BERT's
/// sizes (for others it spills).
template <class T, bool kWhole>
constexpr int kWarpBlocks = sizeof(T) == 4 ? 4 : (kWhole ? 0 : 5);
constexpr int kColumnsPerPass = kWarpSize * kVectorWidth, kMaxPasses = 4;
constexpr int kBlockThreads = 256, kMaxWarps = kBlockThreads / kWarpSize;  // one block per row
constexpr int64_t kSms = 132;                                              // of an H200
constexpr int64_t kMaxRowBlocks = 1 << 30;

/// Registers of a thread if an SM of sm_90 holds `warps` warps.
constexpr int registers_for(int warps) { return 65536 / (kWarpSize * warps) / 8 * 8; }

/// Threads of a backward block: enough for 8 columns each, up to kBlockThreads.
inline unsigned backward_threads(int64_t columns) {
  return static_cast<unsigned>(at_most(kWarpSize * ceil_divide(columns, kColumnsPerPass), kBlockThreads));
}

/// One wave of blocks if an SM holds `warps` warps. It is the same on every device, so that results are the same.
inline unsigned backward_blocks(int64_t rows, int64_t columns, int warps) {
  const int warps_per_block = static_cast<int>(backward_threads(columns)) / kWarpSize;
  return static_cast<unsigned>(at_most(rows, kSms * (warps / warps_per_block)));
}

/// The source of the rows z and the destination of their gradient. A row is found in two moves, so that backward can
/// load what locates a row before it needs the row.
template <class R>
concept RowSource = requires(const R rows, int64_t row, typename R::Ids ids, typename R::Location location,
                             typename R::template Parts<1> parts, int64_t column, uint32_t kept, float (&z)[1],
                             float (&sums)[R::kSums][1]) {
  typename R::Activation;  // of y and dy
  typename R::Parameter;   // of gamma and beta
  { rows.rows } -> std::convertible_to<int64_t>;
  { rows.columns } -> std::convertible_to<int64_t>;
  { rows.dropout } -> std::convertible_to<DropoutMask>;
  { R::kDropsOutput } -> std::convertible_to<bool>;   // true: the dropout is that of y; false: it is applied to z
  { R::kSums } -> std::convertible_to<int>;           // sums over rows: dgamma, dbeta, and those that write() adds to
  { R::kBackwardWarps } -> std::convertible_to<int>;  // of layer_norm_row_backward_kernel on an SM, by its registers
  { rows.load_ids(row) } -> std::same_as<typename R::Ids>;
  { rows.locate(ids) } -> std::same_as<typename R::Location>;  // Location() is none
  { rows.template read<1>(location, column) } -> std::same_as<typename R::template Parts<1>>;
  { rows.add_up(location, parts, column, kept, z) } -> std::same_as<void>;     // z of the parts
  { rows.write(row, location, column, kept, z, sums) } -> std::same_as<void>;  // of dz
};

template <RowSource Rows>
struct Normalise {
  Rows rows;
  const typename Rows::Parameter *gamma, *beta;  // [columns]
  float eps;
  typename Rows::Activation* y;  // [rows, columns]
  float *mean, *rstd;            // [rows]
  float inverse_columns = 0.0F;  // 1 / columns, by the launcher, because division on the device is a subroutine
};

template <RowSource Rows>
struct NormaliseBackward {
  Rows rows;
  const typename Rows::Activation* dy;    // [rows, columns]
  const typename Rows::Parameter* gamma;  // [columns]
  const float *mean, *rstd;               // [rows]
  float* workspace;                       // [blocks, kSums, columns]
};

/// z of N columns of a row.
template <int N, RowSource Rows>
__device__ __forceinline__ void read_z(const Rows& rows, typename Rows::Location location, uint64_t key, int64_t column,
                                       float (&z)[N]) {
  const uint32_t kept = Rows::kDropsOutput ? ~0U : kept_columns<N>(rows.dropout, key, column);
  rows.add_up(location, rows.template read<N>(location, column), column, kept, z);
}

/// y of N columns, of which centred is z - mean.
template <RowSource Rows, int N>
__device__ __forceinline__ void write_y(const Normalise<Rows>& a, int64_t row, int64_t column, uint32_t kept,
                                        const float (&centred)[N], float rstd) {
  using P = typename Rows::Parameter;
  const Vector<P, N> gamma = load<N>(a.gamma + column), beta = load<N>(a.beta + column);
  float y[N];
#pragma unroll
  for (int i = 0; i < N; ++i) {
    y[i] = centred[i] * rstd * gamma[i] + beta[i];
    if constexpr (Rows::kDropsOutput) y[i] *= mask_factor(a.rows.dropout, kept, i);
  }
  store_floats(a.y + row * a.rows.columns + column, y);
}

/// kWhole: every pass covers existing columns only, so that only loads and stores are conditional.
template <RowSource Rows, int kPasses, bool kWhole>
__global__ void __launch_bounds__(kWarpThreads, kWarpBlocks<typename Rows::Activation, kWhole>)
    layer_norm_warp_forward_kernel(Normalise<Rows> a) {
  constexpr int N = kVectorWidth;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + warp_of_thread();
  const int64_t start = lane_of_thread() * N;
  const bool here = row < a.rows.rows;  // false in the last block's idle warps
  const int64_t columns = kWhole ? kPasses * kColumnsPerPass : a.rows.columns;
  const auto inside = [&](int pass) { return kWhole || start + pass * kColumnsPerPass < columns; };
  typename Rows::Location location = {};
  uint64_t key = 0;
  if (here) location = a.rows.locate(a.rows.load_ids(row)), key = row_key(a.rows.dropout, row);
  typename Rows::template Parts<N> parts[kPasses] = {};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {  // (a load without a condition sinks behind the mask)
    if (here && inside(pass)) parts[pass] = a.rows.template read<N>(location, start + pass * kColumnsPerPass);
  }
  // The mask of the row in one go, while the row is loaded: the passes share Philox's keys and first rounds.
  uint32_t kept[kPasses];
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) kept[pass] = ~0U;
  if (a.rows.dropout.keys != nullptr) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      kept[pass] = keep_bits<N>(a.rows.dropout, key, start + pass * kColumnsPerPass);
    }
  }
  float z[kPasses][N] = {}, sum = 0.0F;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!inside(pass)) continue;
    a.rows.add_up(location, parts[pass], start + pass * kColumnsPerPass, kept[pass], z[pass]);
#pragma unroll
    for (int i = 0; i < N; ++i) sum += z[pass][i];
  }
  const float inverse = a.inverse_columns, mean = warp_sum(sum) * inverse;
  float squares = 0.0F;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (!inside(pass)) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      z[pass][i] -= mean;
      squares += z[pass][i] * z[pass][i];
    }
  }
  const float rstd = reciprocal_sqrt(warp_sum(squares) * inverse + a.eps);
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    if (here && inside(pass)) write_y(a, row, start + pass * kColumnsPerPass, kept[pass], z[pass], rstd);
  }
  if (lane_of_thread() == 0 && here) a.mean[row] = mean, a.rstd[row] = rstd;
}

template <RowSource Rows, int N>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_block_forward_kernel(Normalise<Rows> a) {
  BERT_SHARED(float, scratch, 2 * kMaxWarps);
  const int64_t columns = a.rows.columns, start = static_cast<int64_t>(threadIdx.x) * N;
  for (int64_t row = blockIdx.x; row < a.rows.rows; row += gridDim.x) {
    const typename Rows::Location location = a.rows.locate(a.rows.load_ids(row));
    const uint64_t key = row_key(a.rows.dropout, row);
    float z[N], sum[1] = {}, squares[1] = {};
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.rows, location, key, column, z);
#pragma unroll
      for (int i = 0; i < N; ++i) sum[0] += z[i];
    }
    block_sum<kMaxWarps>(sum, scratch);
    const float mean = sum[0] * a.inverse_columns;
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.rows, location, key, column, z);
#pragma unroll
      for (int i = 0; i < N; ++i) squares[0] += (z[i] - mean) * (z[i] - mean);
    }
    block_sum<kMaxWarps>(squares, scratch + kMaxWarps);
    const float rstd = reciprocal_sqrt(squares[0] * a.inverse_columns + a.eps);
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read_z(a.rows, location, key, column, z);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] -= mean;
      write_y(a, row, column, Rows::kDropsOutput ? kept_columns<N>(a.rows.dropout, key, column) : ~0U, z, rstd);
    }
    if (threadIdx.x == 0) a.mean[row] = mean, a.rstd[row] = rstd;
  }
}

/// dy of N columns in fp32, that of the y before its dropout.
template <RowSource Rows, int N>
__device__ __forceinline__ void unmask(const Rows& rows, const Vector<typename Rows::Activation, N>& vector,
                                       uint32_t kept, float (&dy)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    dy[i] = vector[i];
    if constexpr (Rows::kDropsOutput) dy[i] *= mask_factor(rows.dropout, kept, i);
  }
}

/// The numbers of a row in backward. Lane 0 has the mean and the key, lane 1 has rstd. A number that every thread reads
/// would go to a uniform register, and the warp would wait for it behind the load.
struct RowNumbers {
  float statistic;
  uint64_t key;
};

template <RowSource Rows>
__device__ __forceinline__ RowNumbers load_numbers(const NormaliseBackward<Rows>& a, int64_t row) {
  RowNumbers numbers = {};
  if (lane_of_thread() < 2) numbers.statistic = (lane_of_thread() == 0 ? a.mean : a.rstd)[row];
  if (lane_of_thread() == 0) numbers.key = row_key(a.rows.dropout, row);
  return numbers;
}

template <RowSource Rows>
__global__ void __maxnreg__(registers_for(Rows::kBackwardWarps))
    layer_norm_row_backward_kernel(NormaliseBackward<Rows> a) {
  constexpr int N = kVectorWidth, kSums = Rows::kSums;
  using T = typename Rows::Activation;
  using P = typename Rows::Parameter;
  using Ids = typename Rows::Ids;
  using Location = typename Rows::Location;
  using Parts = typename Rows::template Parts<N>;
  BERT_SHARED(float, scratch, 2 * 2 * kMaxWarps);
  const int64_t columns = a.rows.columns, last = a.rows.rows - 1;
  const bool inside = static_cast<int64_t>(threadIdx.x) * N < columns;
  const float inverse = 1.0F / static_cast<float>(columns);
  // A thread without columns reads the first, and behind the last row the last row is read: that is cheaper than
  // conditions.
  const int64_t column = inside ? static_cast<int64_t>(threadIdx.x) * N : 0;
  const auto row_after = [&](int64_t row) { return row + gridDim.x < last ? row + gridDim.x : last; };
  const Vector<P, N> gamma = load<N>(a.gamma + column);
  float sums[kSums][N] = {};
  int turn = 0;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  // Three rows are in flight: the values of this row and of the next one, and the location of the one after it.
  Location location = a.rows.locate(a.rows.load_ids(blockIdx.x));
  Ids ids = a.rows.load_ids(row_after(blockIdx.x));
  Parts next = a.rows.template read<N>(location, column);
  Vector<T, N> next_dy = load<N>(a.dy + blockIdx.x * columns + column);
  RowNumbers next_numbers = load_numbers(a, blockIdx.x);
  for (int64_t row = blockIdx.x; row < a.rows.rows; row += gridDim.x, turn ^= 1) {
    const Parts parts = next;
    const Vector<T, N> dy_vector = next_dy;
    const Location here = location;
    const RowNumbers numbers = next_numbers;
    const int64_t next_row = row_after(row);
    location = a.rows.locate(ids);
    next = a.rows.template read<N>(location, column);
    next_dy = load<N>(a.dy + next_row * columns + column);
    next_numbers = load_numbers(a, next_row);
    ids = a.rows.load_ids(row_after(next_row));
    const float mean = shuffle(numbers.statistic, 0), rstd = shuffle(numbers.statistic, 1);
    const uint64_t key = shuffle(numbers.key, 0);
    float xhat[N] = {}, dy[N], means[2] = {};
    uint32_t kept = 0;
    if (inside) {
      kept = kept_columns<N>(a.rows.dropout, key, column);
      a.rows.add_up(here, parts, column, kept, xhat);
      unmask(a.rows, dy_vector, kept, dy);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        xhat[i] = (xhat[i] - mean) * rstd;
        const float g = dy[i] * gamma[i];
        sums[0][i] += dy[i] * xhat[i];
        sums[1][i] += dy[i];
        means[0] += g;
        means[1] += g * xhat[i];
      }
    }
    block_sum<kMaxWarps>(means, scratch + turn * 2 * kMaxWarps, warps);
    if (inside) {
      float dz[N];
      unmask(a.rows, dy_vector, kept, dy);  // computed again, which is cheaper than registers
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dz[i] = rstd * (dy[i] * gamma[i] - means[0] * inverse - xhat[i] * (means[1] * inverse));
      }
      a.rows.write(row, here, column, kept, dz, sums);
    }
  }
  if (inside) {
    float* const partial = a.workspace + static_cast<int64_t>(blockIdx.x) * kSums * columns + column;
#pragma unroll
    for (int s = 0; s < kSums; ++s) store_floats(partial + s * columns, sums[s]);
  }
}

template <RowSource Rows, int N>
__global__ void __launch_bounds__(kBlockThreads) layer_norm_block_backward_kernel(NormaliseBackward<Rows> a) {
  constexpr int kSums = Rows::kSums;
  using T = typename Rows::Activation;
  using P = typename Rows::Parameter;
  BERT_SHARED(float, scratch, 2 * 2 * kMaxWarps);
  int turn = 0;
  const int warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int64_t columns = a.rows.columns, start = static_cast<int64_t>(threadIdx.x) * N;
  const float inverse = 1.0F / static_cast<float>(columns);
  // No other thread writes this thread's columns of the block's sums.
  float* partial = a.workspace + static_cast<int64_t>(blockIdx.x) * kSums * columns;
  for (int64_t row = blockIdx.x; row < a.rows.rows; row += gridDim.x, turn ^= 1) {
    const float mean = a.mean[row], rstd = a.rstd[row];
    const bool first = row == blockIdx.x;
    const typename Rows::Location location = a.rows.locate(a.rows.load_ids(row));
    const uint64_t key = row_key(a.rows.dropout, row);
    float xhat[N], dy[N], means[2] = {};
    const auto read = [&](int64_t column) {
      const uint32_t kept = kept_columns<N>(a.rows.dropout, key, column);
      a.rows.add_up(location, a.rows.template read<N>(location, column), column, kept, xhat);
      const Vector<T, N> vector = load<N>(a.dy + row * columns + column);
      unmask(a.rows, vector, kept, dy);
#pragma unroll
      for (int i = 0; i < N; ++i) xhat[i] = (xhat[i] - mean) * rstd;
      return kept;
    };
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      read(column);
      const Vector<P, N> gamma = load<N>(a.gamma + column);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float g = dy[i] * gamma[i];
        means[0] += g;
        means[1] += g * xhat[i];
      }
    }
    block_sum<kMaxWarps>(means, scratch + turn * 2 * kMaxWarps, warps);
    for (int64_t column = start; column < columns; column += blockDim.x * N) {
      const uint32_t kept = read(column);
      const Vector<P, N> gamma = load<N>(a.gamma + column);
      float dz[N], sums[kSums][N] = {};
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dz[i] = rstd * (dy[i] * gamma[i] - means[0] * inverse - xhat[i] * (means[1] * inverse));
        sums[0][i] = dy[i] * xhat[i];
        sums[1][i] = dy[i];
      }
      a.rows.write(row, location, column, kept, dz, sums);
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
          float* const sum = partial + s * columns + column + i;
          *sum = (first ? 0.0F : *sum) + sums[s][i];
        }
      }
    }
  }
}

/// Calls run(number of passes, true if all are whole) if the fast path fits; returns true if it does. BERT's sizes have
/// instances of their own.
template <class Run>
bool with_passes(bool aligned, int64_t columns, const Run& run) {
  if (!aligned || columns % kVectorWidth != 0 || columns > kMaxPasses * kColumnsPerPass) return false;
  constexpr std::integral_constant<int, 3> kThree;
  constexpr std::integral_constant<int, kMaxPasses> kMost;
  if (columns == kThree * kColumnsPerPass) {
    run(kThree, std::true_type());
  } else if (columns == kMost * kColumnsPerPass) {
    run(kMost, std::true_type());
  } else if (columns <= kColumnsPerPass) {
    run(std::integral_constant<int, 1>(), std::false_type());
  } else if (columns <= 2 * kColumnsPerPass) {
    run(std::integral_constant<int, 2>(), std::false_type());
  } else {
    run(kMost, std::false_type());
  }
  return true;
}

/// aligned: all data of the rows may be read in vectors.
template <RowSource Rows>
void normalise(Normalise<Rows> a, bool aligned, Stream stream) {
  const int64_t rows = a.rows.rows, columns = a.rows.columns;
  if (rows == 0 || columns == 0) return;
  a.inverse_columns = 1.0F / static_cast<float>(columns);
  aligned = aligned && all_aligned(a.gamma, a.beta, a.y);
  if (with_passes(aligned, columns, [&](auto passes, auto whole) {
        launch(layer_norm_warp_forward_kernel<Rows, passes, whole>, {.x = ceil_divide(rows, kRowsPerBlock)},
               kWarpThreads, 0, stream, a);
      })) {
    return;
  }
  const Grid grid{.x = static_cast<unsigned>(at_most(rows, kMaxRowBlocks))};
  if (aligned && columns % kVectorWidth == 0) {
    launch(layer_norm_block_forward_kernel<Rows, kVectorWidth>, grid, kBlockThreads, 0, stream, a);
  } else {
    launch(layer_norm_block_forward_kernel<Rows, 1>, grid, kBlockThreads, 0, stream, a);
  }
}

/// Leaves the blocks' sums in the workspace; returns the number of blocks.
template <RowSource Rows>
unsigned normalise_backward(const NormaliseBackward<Rows>& a, bool aligned, Stream stream) {
  const int64_t rows = a.rows.rows, columns = a.rows.columns;
  const Grid grid{.x = backward_blocks(rows, columns, Rows::kBackwardWarps)};
  const unsigned threads = backward_threads(columns);
  const bool vectors = aligned && columns % kVectorWidth == 0 && all_aligned(a.gamma, a.dy, a.workspace);
  if (rows == 0 || columns == 0) return 0;
  if (vectors && columns <= kVectorWidth * kBlockThreads) {
    launch(layer_norm_row_backward_kernel<Rows>, grid, threads, 0, stream, a);
  } else if (vectors) {
    launch(layer_norm_block_backward_kernel<Rows, kVectorWidth>, grid, threads, 0, stream, a);
  } else {
    launch(layer_norm_block_backward_kernel<Rows, 1>, grid, threads, 0, stream, a);
  }
  return grid.x;
}

}  // namespace
}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
