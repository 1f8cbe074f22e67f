#include "cuda_ext/cpu/tensors.h"

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/scalar/philox.h"

namespace bert::cpu {

bool has_kernel(const Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

simd::Type type_of(const Tensor& x) {
  return x.scalar_type() == at::kFloat      ? simd::Type::kFloat
         : x.scalar_type() == at::kBFloat16 ? simd::Type::kBFloat16
                                            : simd::Type::kHalf;
}

simd::Mask mask_of(double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return {.seed = static_cast<uint64_t>(seed),
          .site = static_cast<uint32_t>(site),
          .threshold = p > 0.0 ? dropout_threshold(p) : 0,
          .keys = p > 0.0 ? keys->const_data_ptr<int64_t>() : nullptr,
          .scale = static_cast<float>(1.0 / (1.0 - p))};
}

bool streams(const Tensor& result) {
  const auto row_bytes = static_cast<size_t>(result.size(-1)) * result.itemsize();
  return result.nbytes() >= kStreamBytes && row_bytes % simd::kStreamAlign == 0 &&
         reinterpret_cast<uintptr_t>(result.const_data_ptr()) % simd::kStreamAlign == 0;
}

float* scratch(int64_t floats) {
  constexpr size_t kAlign = 64;
  static thread_local std::vector<float> memory;
  const size_t needed = static_cast<size_t>(floats) + kAlign / sizeof(float);
  if (memory.size() < needed) memory.resize(needed);
  void* aligned = memory.data();
  size_t space = memory.size() * sizeof(float);
  return static_cast<float*>(std::align(kAlign, static_cast<size_t>(floats) * sizeof(float), aligned, space));
}

Tensor as_float(const Tensor& parameter) { return parameter.to(at::kFloat); }

Partials::Partials(int64_t rows, int64_t columns, const Tensor& like)
    : sums_(at::empty({(rows + kPiece - 1) / kPiece, columns}, like.options().dtype(at::kFloat))) {}

Tensor Partials::total() const {
  const int64_t pieces = sums_.size(0), columns = sums_.size(1);
  Tensor result = at::zeros({columns}, sums_.options());
  const float* from = sums_.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, columns, grain(pieces * 4), [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < pieces; ++i) {
      for (int64_t c = begin; c < end; ++c) to[c] += from[i * columns + c];
    }
  });
  return result;
}

Tensor room_for_mask(double p, int64_t rows, int64_t columns, const Tensor& like) {
  if (p == 0.0) return composite::nothing_kept(like);
  return at::empty({rows, simd::kept_bytes(columns)}, like.options().dtype(at::kByte));
}

simd::Mask keeping_mask(simd::Mask mask, const Tensor& kept) {
  if (kept.numel() > 0) mask.kept = kept.mutable_data_ptr<uint8_t>();
  return mask;
}

simd::Mask kept_mask(simd::Mask mask, const Tensor& kept) {
  mask = keeping_mask(mask, kept);
  mask.drawn = mask.kept != nullptr;
  return mask;
}

}  // namespace bert::cpu
