// Dropout, and its mask.
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);

Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept);

/// True for elements that are kept, [T, columns] bool.
Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p);

/// An empty mask: backward draws it again.
Tensor nothing_kept(const Tensor& like);

/// 0 where dropped, 1 / (1 - p) where kept.
Tensor dropout_scale(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p, at::ScalarType dtype);

/// x * the dropout mask, in x's dtype.
Tensor masked(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::dropout> dropout;
dispatch::CheckOf<composite::dropout_backward> dropout_backward;
dispatch::CheckOf<composite::dropout_mask> dropout_mask;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::dropout, checks::dropout> dropout{"bert::dropout"};
inline constexpr Operator<composite::dropout_backward, checks::dropout_backward> dropout_backward{
    "bert::dropout_backward"};
inline constexpr Operator<composite::dropout_mask, checks::dropout_mask> dropout_mask{"bert::dropout_mask"};

}  // namespace dispatch
}  // namespace bert
