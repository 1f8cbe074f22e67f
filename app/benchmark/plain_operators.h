// The operators of ops.h as a program without them would write them: plain expressions of ATen, differentiated and cast
// by ATen itself. The benchmarks time the operators against these expressions. Kernels are not checked against them, but
// against the compositions of cuda_ext/dispatch, whose dropout draws the same masks as the kernels do.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "cuda_ext/multi_tensor.h"

namespace bert {

/// Operators that a PlainOperators scope replaces together.
enum class OpGroup : uint8_t { kLinear, kLayerNorm, kGelu, kSoftmax, kAttention, kCrossEntropy, kDropout, kOptimizer };

/// Within its scope, and on its thread, the operators of the groups are the expressions below. Scopes nest; the inner
/// one counts. A backward that was recorded within a scope is ATen's, wherever it runs. The optimizer's step is replaced
/// where its list of tensors was first seen after the first scope of the process began.
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

// Parameters and results as those of the same name in bert::composite; what only a backward needs is returned undefined.
// Dropout is at::dropout: site, seed and keys are not used.

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);

/// Three products, side by side.
Tensor qkv_linear(const Tensor& x, const Tensor& query_weight, const Tensor& key_weight, const Tensor& value_weight,
                  const Tensor& query_bias, const Tensor& key_bias, const Tensor& value_bias);

/// linear, with columns of 0 behind it.
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

/// Scale, mask, softmax, dropout; rows of padding hold anything.
std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys);

/// Product, masked_softmax_dropout (by this file's expression where the scope names its group), product, over padded
/// sequences.
std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys);

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes);

// What multi_tensor.h does, a tensor after the other. Whether a step is skipped is read by the host, as
// torch.amp.GradScaler does.
Tensor norm(const std::vector<Tensor>& tensors);
void unscale_(const std::vector<Tensor>& tensors, const Tensor& inv_scale, const Tensor& found_inf);
void step(UpdateRule rule, const std::vector<ops::OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
          const ops::StepTensors& scalars);

}  // namespace plain
}  // namespace bert
