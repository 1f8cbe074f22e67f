// The operators of BERT. Each one checks its arguments (also in torch.ops.bert), runs by device and dtype, has a first
// derivative, and follows autocast. Parameters may have another floating dtype than activations, except those of
// linear(). The result has the dtype of the activations; each gradient has the dtype of its input.
// T tokens, H hidden, A heads, D head size, V vocabulary, M masked tokens, I intermediate size.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bert::ops {

/// The inputs of dropout: see Note [Dropout keys] in philox.h. p = 0 needs no keys.
struct Dropout {
  double p = 0.0;  // in [0, 1)
  int64_t seed = 0;
  int64_t site = 0;  // dropout_site(layer, ...)
  at::Tensor keys;   // [T] int64
};

enum class Gelu { kTanh, kErf };

/// y = x weight^T + bias. x [T, K], weight [N, K], bias [N] or undefined, all of one dtype. On the CPU either MKL or
/// oneDNN runs, by shape and dtype, whichever is faster.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// Three projections in one GEMM: [T, H] -> [T, 3H], query | key | value. The three weights are views of one [3H, H]
/// storage and the biases of one [3H] (else they are concatenated, which costs a copy).
struct QkvParameters {
  at::Tensor query_weight, key_weight, value_weight;  // [H, H]
  at::Tensor query_bias, key_bias, value_bias;        // [H]
};
at::Tensor qkv_linear(const at::Tensor& x, const QkvParameters& parameters);

/// gelu(x + bias). x [T, I], bias [I].
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu form);

/// LayerNorm(dropout(x + bias) + residual) * gamma + beta, statistics in fp32. x, residual [T, H]; bias, gamma, beta
/// [H].
at::Tensor bias_dropout_residual_layer_norm(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& residual,
                                            const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                            const Dropout& dropout);

/// LayerNorm(x) * gamma + beta, statistics in fp32. x [T, H].
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gamma, const at::Tensor& beta, double eps);

/// dropout(LayerNorm(word[input_ids] + position[position_ids] + type[token_type_ids])). ids [T] int64; word [V, H], ...
/// The backward scatter is deterministic. An id outside of its table is an error on the CPU, and gives a row of NaN on
/// CUDA.
struct EmbeddingTables {
  at::Tensor word, position, type;
};
at::Tensor embedding_layer_norm_dropout(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                        const at::Tensor& token_type_ids, const EmbeddingTables& tables,
                                        const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                        const Dropout& dropout);

/// Self-attention of packed sequences: softmax(q k^T / sqrt(D)) v within each sequence, dropout on the probabilities.
/// qkv [T, 3H] (query | key | value, each A heads of D); cu_seqlens [B + 1] int32. Returns [T, H].
at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                     const Dropout& dropout);

/// dropout(softmax(scale * scores)) within each sequence: the probabilities of attention on devices without a fused
/// kernel. The values are those inside attention(). scores [B, A, S, S2]; cu_seqlens [B + 1] int32, whose differences
/// are the lengths (at most S and S2). Columns beyond a sequence's length are padding, and so are rows. Padding takes
/// no part: its result and gradient are 0 whatever it holds. dropout.keys [T] by token; dropout.site is the site of the
/// first head.
at::Tensor masked_softmax_dropout(const at::Tensor& scores, const at::Tensor& cu_seqlens, double scale,
                                  const Dropout& dropout);

/// dropout(x). x [T, ...], column = index within the row.
at::Tensor dropout(const at::Tensor& x, const Dropout& dropout);

/// Mean over M of -log softmax(logits[:, :num_classes])[label], an fp32 scalar; 0 when M = 0. logits [M, N >=
/// num_classes], labels [M] int64 in [0, num_classes). Another label throws on the CPU; on other devices the loss and
/// the gradient of its row are NaN. Columns from num_classes on are padding: they take no part and have gradient 0. If
/// nothing else holds the logits, backward writes the gradient over them; a second backward through the same graph then
/// throws. `counted`, an fp32 scalar, is a number of rows: those after the first so many take no part, and have gradient
/// 0; undefined: all count.
at::Tensor cross_entropy(const at::Tensor& logits, const at::Tensor& labels, int64_t num_classes,
                         const at::Tensor& counted = {});

/// cross_entropy() and the terms of its mean: [M] fp32 (fp64 for fp64 logits), without gradient; 0 of rows that take no
/// part.
struct CrossEntropyOfRows {
  at::Tensor mean, rows;
};
CrossEntropyOfRows cross_entropy_of_rows(const at::Tensor& logits, const at::Tensor& labels, int64_t num_classes,
                                         const at::Tensor& counted = {});

}  // namespace bert::ops
