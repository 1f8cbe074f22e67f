// The operators as plain compositions of ATen operators: they run on every device and dtype, serve where no kernel of
// ours is registered (double, a device without kernels), and are what the kernels are checked against. Schemas and
// meaning: ops.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace bert::composite {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// Which elements are kept, [T, columns] bool.
Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p);

Tensor dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh);

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps);

std::tuple<Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                    const Tensor& residual, const Tensor& gamma,
                                                                    const Tensor& beta, double eps, double p,
                                                                    int64_t seed, int64_t site,
                                                                    const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor> embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids,
                                                                const Tensor& token_type_ids, const Tensor& word,
                                                                const Tensor& position, const Tensor& type,
                                                                const Tensor& gamma, const Tensor& beta, double eps,
                                                                double p, int64_t seed, int64_t site,
                                                                const OptionalTensor& keys);

std::tuple<Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                                     double p, int64_t seed, int64_t site, const OptionalTensor& keys);

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes);

}  // namespace bert::composite
