// The operators of ops.h as plain expressions of ATen, which differentiates and casts them itself: a program without
// the operators would be written like this. The benchmarks time the operators against these expressions. Kernels are
// not tested against them, but against the compositions of cuda_ext/dispatch, whose dropout draws the same masks as the
// kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "cuda_ext/multi_tensor.h"

namespace bert {

/// Operators that a PlainOperators scope replaces together.
enum class OpGroup : uint8_t { kLinear, kLayerNorm, kGelu, kSoftmax, kAttention, kCrossEntropy, kDropout };

/// Within its scope and on its thread, the expressions below replace the operators of the groups. Scopes nest; the
/// inner one counts. A backward recorded within a scope is ATen's, wherever it runs.
class PlainOperators {
 public:
  explicit PlainOperators(const std::vector<OpGroup>& groups);
  ~PlainOperators();
  PlainOperators(const PlainOperators&) = delete;
  PlainOperators& operator=(const PlainOperators&) = delete;

 private:
  uint32_t groups_before_;
  bool included_before_;
};

namespace plain {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Parameters and results are those of the same name in bert::composite. Results that only a backward needs are
// undefined. Dropout is at::dropout: site, seed and keys are not used.

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);

/// Three products, joined by columns.
Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias);

/// linear(), with columns of 0 added.
Tensor padded_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t columns);

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh);

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps);

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys);

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys);

/// Scale, mask, softmax, dropout. Rows of padding hold any value.
std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys);

/// Product, masked_softmax_dropout (the expression above if the scope names its group), product, over padded sequences.
std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys);

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& counted);

// The functions of multi_tensor.h, one tensor after another. The host reads the flag that skips a step, as
// torch.amp.GradScaler does.
Tensor norm(const std::vector<Tensor>& tensors);
void unscale_(const std::vector<Tensor>& tensors, const Tensor& inv_scale, const Tensor& found_inf);
void step(UpdateRule rule, const std::vector<ops::OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
          const ops::StepTensors& scalars);

}  // namespace plain
}  // namespace bert
