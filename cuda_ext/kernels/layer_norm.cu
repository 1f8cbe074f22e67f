// y = LayerNorm(z) gamma + beta, z = dropout(x + bias) + residual (bias, dropout and residual are each optional), and
// its backward: dresidual = dz, dx = dz / (1 - p) where kept and 0 where dropped, dbias = sum dx. The kernels are those
// of layer_norm.cuh.
//
// Bytes per element with 2-byte activations: forward 6 (read x and residual, write y), backward 10 (read x, residual
// and dy, write dx and dresidual); plain layer norm 4 and 6. The partial sums of backward: 24 bytes per column and
// block, 16 in plain layer norm.
//
// A mask is a factor, so that a NaN stays one where it is dropped. A row's mask is drawn in one go, which computes
// Philox's keys and first rounds once. A residual that is absent is added as 0 instead of a branch. Plain layer norm
// has kernels of its own, and so have BERT's sizes in forward. Instructions per element (SASS by cuobjdump, sm_90, bf16
// with fp32 parameters, H = 1024): forward 30.0 (plain 10.8), backward's loop 57.9. At 85 % of an H200's 4.8 TB/s its
// SMs have time for 43 in forward, at 75 % for 82 in backward. Expected share of a copy's bandwidth: forward 91
// %, plain 92 %, backward 85 %. Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/layer_norm.cuh"
#include "cuda_ext/kernels/layer_norm.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

/// kPlain: neither bias, dropout nor residual; else each is where there is a pointer to it.
template <class T, class P, bool kPlain = false>
struct ResidualRows {
  using Activation = T;
  using Parameter = P;
  using Ids = int64_t;  // nothing is loaded: the row's number
  struct Location {
    int64_t start = 0;  // of the row
  };
  template <int N>
  struct Parts {
    Vector<T, N> x = {}, residual = {};
  };
  static constexpr bool kDropsOutput = false;
  static constexpr int kSums = kPlain ? 2 : 3;  // dgamma, dbeta, dbias
  static constexpr int kBackwardWarps = kPlain ? 24 : sizeof(T) == 2 ? 20 : 16;

  int64_t rows, columns;
  const T *x, *residual;
  const P* bias;
  DropoutMask dropout;
  T *dx, *dresidual;

  explicit ResidualRows(const LayerNormInput<T, P>& a, T* gradient = nullptr, T* residual_gradient = nullptr)
      : rows(a.rows),
        columns(a.columns),
        x(a.x),
        residual(a.residual),
        bias(a.bias),
        dropout(a.dropout),
        dx(gradient),
        dresidual(residual_gradient) {}

  __device__ __forceinline__ Ids load_ids(int64_t row) const { return row; }
  __device__ __forceinline__ Location locate(Ids row) const { return {row * columns}; }

  template <int N>
  __device__ __forceinline__ Parts<N> read(Location location, int64_t column) const {
    Parts<N> parts;
    parts.x = load<N>(x + location.start + column);
    if (!kPlain && residual != nullptr) parts.residual = load<N>(residual + location.start + column);
    return parts;
  }

  template <int N>
  __device__ __forceinline__ void add_up(Location /*location*/, const Parts<N>& parts, int64_t column, uint32_t kept,
                                         float (&z)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = parts.x[i];
    if constexpr (kPlain) return;
    if (bias != nullptr) {
      const Vector<P, N> vector = load<N>(bias + column);
#pragma unroll
      for (int i = 0; i < N; ++i) z[i] += vector[i];
    }
#pragma unroll
    for (int i = 0; i < N; ++i) z[i] = z[i] * mask_factor(dropout, kept, i) + parts.residual[i];
  }

  template <int N>
  __device__ __forceinline__ void write(int64_t /*row*/, Location location, int64_t column, uint32_t kept,
                                        float (&dz)[N], float (&sums)[kSums][N]) const {
    if constexpr (!kPlain) {
      if (dresidual != nullptr) store_floats(dresidual + location.start + column, dz);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        dz[i] *= mask_factor(dropout, kept, i);
        sums[2][i] += dz[i];
      }
    }
    store_floats(dx + location.start + column, dz);
  }
};

template <class T, class P>
bool is_plain(const LayerNormInput<T, P>& input) {
  return input.bias == nullptr && input.residual == nullptr && input.dropout.keys == nullptr;
}

template <class T, class P, bool kPlain>
void forward(const LayerNormForward<T, P>& a, Stream stream) {
  using Rows = ResidualRows<T, P, kPlain>;
  const LayerNormInput<T, P>& input = a.input;
  normalise<Rows>(
      {.rows = Rows(input), .gamma = a.gamma, .beta = a.beta, .eps = a.eps, .y = a.y, .mean = a.mean, .rstd = a.rstd},
      all_aligned(input.x, input.bias, input.residual), stream);
}

template <class T, class P, bool kPlain>
void backward(const LayerNormBackward<T, P>& a, Stream stream) {
  using Rows = ResidualRows<T, P, kPlain>;
  const LayerNormInput<T, P>& input = a.input;
  const unsigned blocks =
      normalise_backward<Rows>({.rows = Rows(input, a.dx, a.dresidual),
                                .dy = a.dy,
                                .gamma = a.gamma,
                                .mean = a.mean,
                                .rstd = a.rstd,
                                .workspace = a.workspace},
                               all_aligned(input.x, input.bias, input.residual, a.dx, a.dresidual), stream);
  sum_columns<P>(
      {.partial = a.workspace, .blocks = blocks, .columns = input.columns, .output = {a.dgamma, a.dbeta, a.dbias}},
      Rows::kSums, stream);
}

}  // namespace

int64_t layer_norm_backward_workspace(int64_t rows, int64_t columns, bool plain) {
  using Half = c10::Half;  // the type with the most blocks
  using Rows = ResidualRows<Half, Half>;
  using PlainRows = ResidualRows<Half, Half, true>;
  return columns * (plain ? PlainRows::kSums * backward_blocks(rows, columns, PlainRows::kBackwardWarps)
                          : Rows::kSums * backward_blocks(rows, columns, Rows::kBackwardWarps));
}

template <class T, class P>
void layer_norm_forward(const LayerNormForward<T, P>& a, Stream stream) {
  is_plain(a.input) ? forward<T, P, true>(a, stream) : forward<T, P, false>(a, stream);
}

template <class T, class P>
void layer_norm_backward(const LayerNormBackward<T, P>& a, Stream stream) {
  if (a.input.columns == 0) return;
  is_plain(a.input) ? backward<T, P, true>(a, stream) : backward<T, P, false>(a, stream);
}

#define BERT_INSTANTIATE(T, P)                                             \
  template void layer_norm_forward(const LayerNormForward<T, P>&, Stream); \
  template void layer_norm_backward(const LayerNormBackward<T, P>&, Stream);
BERT_FOR_TYPE_PAIRS(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
