// Shared by the kernels of the CPU: arguments of the vector loops (simd/kernels.h) from tensors, and shares of rows for
// threads. Rows are cut into pieces by their number alone, and sums over rows are added piece by piece in order. So the
// result does not depend on the number of threads.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "cuda_ext/simd/kernels.h"

namespace bert::cpu {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// True for fp32, bf16 and fp16. The compositions run the other dtypes.
bool has_kernel(const Tensor& x);
simd::Type type_of(const Tensor& x);
simd::Mask mask_of(double p, int64_t seed, int64_t site, const OptionalTensor& keys);

/// Results of at least this size are written past the caches. Measured: LayerNorm in fp32 and one read of its result,
/// two cores with 32 MB of cache; past the caches 6 MB are 1.1 times as fast, 12 MB 1.2 to 2 times, 50 MB 1.2 times or
/// more; up to 3 MB are equal.
inline constexpr size_t kStreamBytes = 4 << 20;
/// True if `result` is written past the caches: it is large, and each row (of its last dimension) is aligned.
bool streams(const Tensor& result);

/// Less work than this is not worth a second thread.
inline constexpr int64_t kGrainBytes = 1 << 15;
/// The least number of rows of `row_bytes` for a thread.
inline int64_t grain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

/// The thread's working memory of at least `floats`, kept between calls and aligned for the widest vectors.
float* scratch(int64_t floats);

/// The parameter in fp32, which the kernels take. Parameters are small, so a copy is cheap.
Tensor as_float(const Tensor& parameter);

inline constexpr int64_t kPiece = 64;  // rows that are summed before the sums are added

/// f(piece, first row, last row) for pieces of kPiece rows.
template <class F>
void for_pieces(int64_t rows, int64_t row_bytes, F f) {
  const int64_t pieces = (rows + kPiece - 1) / kPiece;
  at::parallel_for(0, pieces, grain(row_bytes * kPiece), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) f(piece, piece * kPiece, std::min(rows, (piece + 1) * kPiece));
  });
}

/// Sums over rows, one row of `columns` for each piece; total() adds them in order.
class Partials {
 public:
  Partials(int64_t rows, int64_t columns, const Tensor& like);
  float* piece(int64_t index) { return sums_.mutable_data_ptr<float>() + index * sums_.size(1); }
  [[nodiscard]] Tensor total() const;

 private:
  Tensor sums_;
};

// Note [Kept masks]
// Philox takes longer than the rest of a backward with dropout: 50 vector instructions for 32 columns. So the forward
// keeps its mask, one bit an element, and the backward reads it. Without a kept mask, as after a forward on another
// device, the backward draws the same bits again.

/// Memory for the mask of a forward; empty without dropout.
Tensor room_for_mask(double p, int64_t rows, int64_t columns, const Tensor& like);
simd::Mask keeping_mask(simd::Mask mask, const Tensor& kept);
simd::Mask kept_mask(simd::Mask mask, const Tensor& kept);

}  // namespace bert::cpu
