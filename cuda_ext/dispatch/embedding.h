// dropout(LayerNorm(sum of three rows)).
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& kept);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::embedding_layer_norm_dropout> embedding_layer_norm_dropout;
dispatch::CheckOf<composite::embedding_layer_norm_dropout_backward> embedding_layer_norm_dropout_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::embedding_layer_norm_dropout, checks::embedding_layer_norm_dropout>
    embedding_layer_norm_dropout{"bert::embedding_layer_norm_dropout"};
inline constexpr Operator<composite::embedding_layer_norm_dropout_backward,
                          checks::embedding_layer_norm_dropout_backward>
    embedding_layer_norm_dropout_backward{"bert::embedding_layer_norm_dropout_backward"};

}  // namespace dispatch
}  // namespace bert
