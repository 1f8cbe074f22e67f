// y = gelu(x + bias) and its backward, dx = dy gelu'(x + bias), dbias = the column sums of dx.
//
// A block owns 1024 columns (128 threads of 8), so a thread keeps its eight biases and sums of dbias in registers. It
// walks down the rows, four at a time in flight. Each block writes one partial sum to the workspace; sum_columns adds
// these up.
//
// Bytes per element with 2-byte activations: forward 4 (read x, write y), backward 6 (read dy and x, write dx), and 8
// per column and block for the partial sums.
//
// ex2 and rcp do not handle subnormal numbers; erf takes one exponential and a polynomial (math.h). Instructions per
// element in the loop (SASS by cuobjdump, sm_90, bf16 with fp32 bias): tanh forward 13.1, backward 22.3; erf forward
// 20.0, backward 26.1. At 88 % of an H200's 4.8 TB/s its SMs have time for 28 in forward and 42 in backward.
// Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/bias_gelu.h"
#include "cuda_ext/kernels/cuda_utils.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 128;
constexpr int kForwardRows = 4, kBackwardRows = 2;  // of one thread, in flight
constexpr int64_t kMaxForwardBlocks = 32768;        // of the grid's y
constexpr int64_t kBackwardBlocks = 792;  // in all: six on each of an H200's 132 SMs, and as many partial sums

/// Blocks of the backward grid's y: as many as the grid's x leaves, whatever the device, so that results are the same
/// anywhere.
unsigned backward_blocks(int64_t rows, int64_t columns, int width) {
  const int64_t across = ceil_divide(columns, kThreads * width);
  const int64_t most = across < kBackwardBlocks ? kBackwardBlocks / across : 1;
  return static_cast<unsigned>(at_most(ceil_divide(rows, kBackwardRows), most));
}

template <class T, class P, int N, class Gelu>
__global__ void __launch_bounds__(kThreads) bias_gelu_forward_kernel(BiasGeluForward<T, P> a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  float bias[N];
  load_floats(a.bias + column, bias);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kForwardRows;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kForwardRows; first < a.rows; first += stride) {
    Vector<T, N> x[kForwardRows];
#pragma unroll
    for (int r = 0; r < kForwardRows; ++r) {
      if (first + r < a.rows) x[r] = load<N>(a.x + (first + r) * a.columns + column);
    }
#pragma unroll
    for (int r = 0; r < kForwardRows; ++r) {
      if (first + r >= a.rows) continue;
      float y[N];
#pragma unroll
      for (int i = 0; i < N; ++i) y[i] = Gelu::value(x[r][i] + bias[i]);
      store_floats(a.y + (first + r) * a.columns + column, y);
    }
  }
}

template <class T, class P, int N, class Gelu>
__global__ void __launch_bounds__(kThreads) bias_gelu_backward_kernel(BiasGeluBackward<T, P> a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  float bias[N], sums[N] = {};
  load_floats(a.bias + column, bias);
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kBackwardRows;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kBackwardRows; first < a.rows; first += stride) {
    Vector<T, N> x[kBackwardRows], dy[kBackwardRows];
#pragma unroll
    for (int r = 0; r < kBackwardRows; ++r) {
      if (first + r >= a.rows) continue;
      x[r] = load<N>(a.x + (first + r) * a.columns + column);
      dy[r] = load<N>(a.dy + (first + r) * a.columns + column);
    }
#pragma unroll
    for (int r = 0; r < kBackwardRows; ++r) {
      if (first + r >= a.rows) continue;
      float dx[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dx[i] = dy[r][i] * Gelu::derivative(x[r][i] + bias[i]);
        sums[i] += dx[i];
      }
      store_floats(a.dx + (first + r) * a.columns + column, dx);
    }
  }
  store_floats(a.workspace + blockIdx.y * a.columns + column, sums);
}

template <class T, class P, int N, class Gelu>
void launch_forward(const BiasGeluForward<T, P>& a, Stream stream) {
  const Grid grid{.x = ceil_divide(a.columns, kThreads * N),
                  .y = static_cast<unsigned>(at_most(ceil_divide(a.rows, kForwardRows), kMaxForwardBlocks))};
  launch(bias_gelu_forward_kernel<T, P, N, Gelu>, grid, kThreads, 0, stream, a);
}

template <class T, class P, int N, class Gelu>
void launch_backward(const BiasGeluBackward<T, P>& a, Stream stream) {
  const Grid grid{.x = ceil_divide(a.columns, kThreads * N), .y = backward_blocks(a.rows, a.columns, N)};
  if (grid.y > 0) launch(bias_gelu_backward_kernel<T, P, N, Gelu>, grid, kThreads, 0, stream, a);
  sum_columns<P>({.partial = a.workspace, .blocks = grid.y, .columns = a.columns, .output = {a.dbias}}, 1, stream);
}

}  // namespace

int64_t bias_gelu_backward_workspace(int64_t rows, int64_t columns) {
  return backward_blocks(rows, columns, kVectorWidth) * columns;  // the slow path has no more
}

template <class T, class P>
void bias_gelu_forward(const BiasGeluForward<T, P>& a, Stream stream) {
  if (a.rows == 0 || a.columns == 0) return;
  const bool vectors = a.columns % kVectorWidth == 0 && all_aligned(a.x, a.bias, a.y);
  if (a.tanh) {
    vectors ? launch_forward<T, P, kVectorWidth, GeluTanh>(a, stream) : launch_forward<T, P, 1, GeluTanh>(a, stream);
  } else {
    vectors ? launch_forward<T, P, kVectorWidth, GeluErf>(a, stream) : launch_forward<T, P, 1, GeluErf>(a, stream);
  }
}

template <class T, class P>
void bias_gelu_backward(const BiasGeluBackward<T, P>& a, Stream stream) {
  if (a.columns == 0) return;
  const bool vectors = a.columns % kVectorWidth == 0 && all_aligned(a.dy, a.x, a.bias, a.dx, a.workspace);
  if (a.tanh) {
    vectors ? launch_backward<T, P, kVectorWidth, GeluTanh>(a, stream) : launch_backward<T, P, 1, GeluTanh>(a, stream);
  } else {
    vectors ? launch_backward<T, P, kVectorWidth, GeluErf>(a, stream) : launch_backward<T, P, 1, GeluErf>(a, stream);
  }
}

#define BERT_INSTANTIATE(T, P)                                           \
  template void bias_gelu_forward(const BiasGeluForward<T, P>&, Stream); \
  template void bias_gelu_backward(const BiasGeluBackward<T, P>&, Stream);
BERT_FOR_TYPE_PAIRS(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
