// From tensors to the arguments of the vector loops (simd/kernels.h), and from rows to threads: what the CPU's kernels
// share. Rows are cut into pieces by their number alone, and sums over rows are added piece by piece in order: the result
// does not depend on the number of threads.
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

/// fp32, bf16 or fp16; the compositions serve the rest.
bool has_kernel(const Tensor& x);
simd::Type type_of(const Tensor& x);
simd::Mask mask_of(double p, int64_t seed, int64_t site, const OptionalTensor& keys);

/// Results from this size on are written past the caches. LayerNorm in fp32 and one read of its result, two cores with
/// 32 MB of cache: 6 MB 1.1 times as fast so, 12 MB 1.2 to 2 times, 50 MB 1.2 times or more; up to 3 MB equal.
inline constexpr size_t kStreamBytes = 4 << 20;
/// Whether `result` is: it is large, and each row (of its last dimension) is aligned.
bool streams(const Tensor& result);

/// Less work than this is not worth a second thread.
inline constexpr int64_t kGrainBytes = 1 << 15;
/// The least rows of that many bytes for a thread.
inline int64_t grain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

/// At least `floats` of the thread's working memory, kept between calls, aligned for the widest vectors.
float* scratch(int64_t floats);

/// Parameters are small: their kernels take fp32.
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
// Philox takes longer than the rest of a backward that drops: 50 vector instructions for 32 columns. So the forward
// keeps its mask, one bit an element, and the backward reads it; without it, as after a forward elsewhere, the backward
// draws the same bits again.

/// Where a forward keeps its mask; empty without dropout.
Tensor room_for_mask(double p, int64_t rows, int64_t columns, const Tensor& like);
simd::Mask keeping_mask(simd::Mask mask, const Tensor& kept);
simd::Mask kept_mask(simd::Mask mask, const Tensor& kept);

}  // namespace bert::cpu
