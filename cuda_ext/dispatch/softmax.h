// dropout(softmax(scale * scores)) of padded sequences.
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys);

Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys);

/// The token of each slot of padded sequences, [B, S]. A slot without a token gets the last token of its sequence, so
/// that inf and NaN stay in their sequence; in an empty sequence it gets any token.
Tensor tokens_of_slots(const Tensor& cu_seqlens, int64_t slots);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::masked_softmax_dropout> masked_softmax_dropout;
dispatch::CheckOf<composite::masked_softmax_dropout_backward> masked_softmax_dropout_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::masked_softmax_dropout, checks::masked_softmax_dropout> masked_softmax_dropout{
    "bert::masked_softmax_dropout"};
inline constexpr Operator<composite::masked_softmax_dropout_backward, checks::masked_softmax_dropout_backward>
    masked_softmax_dropout_backward{"bert::masked_softmax_dropout_backward"};

}  // namespace dispatch
}  // namespace bert
