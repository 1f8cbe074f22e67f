// Self-attention of packed sequences.
#pragma once

#include "cuda_ext/dispatch/operator.h"

namespace bert {

namespace composite {

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys);

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys);

}  // namespace composite

namespace checks {

dispatch::CheckOf<composite::attention> attention;
dispatch::CheckOf<composite::attention_backward> attention_backward;

}  // namespace checks

namespace dispatch {

inline constexpr Operator<composite::attention, checks::attention> attention{"bert::attention"};
inline constexpr Operator<composite::attention_backward, checks::attention_backward> attention_backward{
    "bert::attention_backward"};

}  // namespace dispatch
}  // namespace bert
