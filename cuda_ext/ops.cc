#include "cuda_ext/ops.h"

#include <ATen/ATen.h>

#include <optional>

#include "cuda_ext/composite.h"

namespace bert::ops {
namespace {

std::optional<at::Tensor> keys_of(const Dropout& dropout) {
  return dropout.keys.defined() ? std::optional(dropout.keys) : std::nullopt;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
}

at::Tensor qkv_linear(const at::Tensor& x, const QkvParameters& parameters) {
  return at::linear(x, at::cat({parameters.query_weight, parameters.key_weight, parameters.value_weight}),
                    at::cat({parameters.query_bias, parameters.key_bias, parameters.value_bias}));
}

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form) {
  return composite::bias_gelu(x, bias, form == Gelu::kTanh);
}

at::Tensor bias_dropout_residual_layer_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                            const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                            const Dropout& dropout) {
  return std::get<0>(composite::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, dropout.p,
                                                                 dropout.seed, dropout.site, keys_of(dropout)));
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps) {
  return std::get<0>(composite::layer_norm(x, gamma, beta, eps));
}

at::Tensor embedding_layer_norm_dropout(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                        const at::Tensor& token_type_ids, const EmbeddingTables& tables,
                                        const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                        const Dropout& dropout) {
  return std::get<0>(composite::embedding_layer_norm_dropout(input_ids, position_ids, token_type_ids, tables.word,
                                                             tables.position, tables.type, gamma, beta, eps, dropout.p,
                                                             dropout.seed, dropout.site, keys_of(dropout)));
}

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                     const Dropout& dropout) {
  return std::get<0>(composite::attention(qkv, cu_seqlens, max_seqlen, num_heads, dropout.p, dropout.seed, dropout.site,
                                          keys_of(dropout)));
}

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  return composite::dropout(x, dropout.p, dropout.seed, dropout.site, keys_of(dropout));
}

at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t num_classes) {
  return composite::cross_entropy(logits, labels, num_classes);
}

}  // namespace bert::ops
