// The operators as plain compositions of ATen operators: they run on every device and dtype, serve where no kernel of
// ours is registered (double, a device without kernels), and are what the kernels are checked against. Schemas and
// meaning: ops.cc.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>

namespace bert::composite {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// The dtype in which sums and statistics are kept.
at::ScalarType accumulation_type(const Tensor& x);

/// Which elements are kept, [T, columns] bool.
Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p);

/// A mask that backward draws again.
Tensor nothing_kept(const Tensor& like);

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);
Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept);

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh);
std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh);

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps);
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma);

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& kept);

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& kept);

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys);

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys);
Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys);

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes);
Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes);

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed);

/// One [T, 3H] product of the three joined weights, which are converted to x's dtype.
Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias);

Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns);

/// The tensor in a dtype, with rows of 0 behind its own up to `rows`; itself where nothing changes.
Tensor padded_rows(const Tensor& tensor, int64_t rows, at::ScalarType dtype);

/// The three laid end to end: a view where they are neighbours in one storage, else a copy.
Tensor join(const Tensor& first, const Tensor& second, const Tensor& third);

}  // namespace bert::composite
