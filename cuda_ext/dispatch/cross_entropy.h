// The mean of -log softmax(logits)[label].
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& counted = {});

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes, const OptionalTensor& counted = {});

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::cross_entropy> cross_entropy;
dispatch::CheckOf<composite::cross_entropy_backward_> cross_entropy_backward_;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::cross_entropy, checks::cross_entropy> cross_entropy{"bert::cross_entropy"};
inline constexpr Operator<composite::cross_entropy_backward_, checks::cross_entropy_backward_> cross_entropy_backward_{
    "bert::cross_entropy_backward_"};

}  // namespace dispatch
}  // namespace bert
