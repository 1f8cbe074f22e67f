// Compares two tensors within a tolerance. A difference is reported with index, got and want.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>

#include "tests/testing.h"

namespace bert::testing {

inline Tolerance tolerance(at::ScalarType type) {
  return type == at::kDouble ? kDouble : type == at::kFloat ? kFloat : type == at::kHalf ? kHalf : kBFloat16;
}

/// Returns "" if every |got - want| is within the limit; else a text about the worst element. NaN equals NaN.
inline std::string mismatch(const at::Tensor& got, const at::Tensor& want, const Tolerance& limit) {
  if (got.sizes() != want.sizes()) return c10::str("sizes ", got.sizes(), " want ", want.sizes());
  if (got.numel() == 0) return "";
  const at::Tensor g = got.detach().to(at::kDouble).flatten(), w = want.detach().to(at::kDouble).flatten();
  const at::Tensor excess = (g - w).abs() - (limit.absolute + limit.relative * w.abs());
  const at::Tensor bad = at::where(g.eq(w).logical_or(g.isnan().logical_and(w.isnan())),
                                   at::full({}, -1.0, w.options()), excess.nan_to_num(INFINITY, INFINITY));
  const int64_t worst = bad.argmax().item<int64_t>();
  if (bad[worst].item<double>() <= 0.0) return "";
  return c10::str("index ", worst, " of ", got.sizes(), ": got ", g[worst].item<double>(), ", want ",
                  w[worst].item<double>());
}

/// The same with scale * tolerance of got's dtype as the limit.
inline std::string mismatch(const at::Tensor& got, const at::Tensor& want, double scale = 1.0) {
  const Tolerance limit = tolerance(got.scalar_type());
  return mismatch(got, want, Tolerance{scale * limit.absolute, scale * limit.relative});
}

}  // namespace bert::testing
