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

/// The token of each slot of padded sequences, [B, S]; the sequence's last where it has no more, so that what is not
/// finite stays in its sequence, and any token in a sequence without.
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
