// The losses of a student against its teacher.
//
// Note [Losses of distillation]
// The losses are those of NVIDIA's BERT/distillation (TinyBERT, MiniLM), in one training instead of one after another.
// They are parts of the loss beside that of the labels, each with its weight:
//   logits     KL divergence of the probabilities, teacher || student. Its gradient is that of the cross entropy with the
//              teacher's probabilities, and it is 0 where both agree. Both logits are divided by a temperature t, and the
//              loss is multiplied by t^2, so that t hardly changes the size of the gradient (Hinton et al. 2015). NVIDIA's
//              lacks t^2 and divides by the number of classes. Of a number: the mean squared difference
//   hidden     1 - cosine of the hidden states, the mean over tokens and the student's layers. Layer i of L learns from
//              layer i * L' / L of the teacher's L', rounded down
//   attention  KL divergence of softmax(Q K^T / sqrt(D)) in the last layer, teacher || student, the mean over tokens and
//              relation heads
//   value      the same of softmax(V V^T / sqrt(D))
// Relation heads (MiniLMv2, Wang et al. 2021) divide the H columns of Q, K and V anew, into D = H / heads columns each. So
// the numbers of attention heads and the hidden sizes of both models are free. With as many relation heads as both have
// attention heads, the first relation is the attention itself, and the losses are NVIDIA's.
// Only tokens count: a sequence is a matrix of its own tokens, whatever else is in the batch. NVIDIA's losses count
// padding, too.
//
// Note [Hidden states of unequal sizes]
// A cosine needs two vectors of one size. NVIDIA and TinyBERT train a projection beside the student for this. It has a
// state to save and to resume, is thrown away at the end, and the student does not need its basis. So for unequal sizes
// this program compares the relations of tokens instead (Tung and Mori 2019): the cosine of each pair of tokens of a
// sequence in the student, minus that in the teacher, squared; the mean over the pairs of each token, then over tokens.
// Nothing but the student has weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/bert.h"

namespace bert {

/// The places of a packed batch's tokens in [B, S], for unpack(); its own `batch` is empty.
PackedInput padded_places(const PackedBatch& batch);

/// Logits of first and last tokens, [T, 2], as one row of -inf behind the sequences' ends: [B, 2, S].
torch::Tensor answer_logits(const torch::Tensor& logits, const PackedBatch& batch);

/// The mean over all rows of KL(softmax(teacher / t) || softmax(student / t)), times t^2. [..., C], -inf in both: no
/// class. With `rows`, bool [...], the mean over those that are true, without a wait for the device. fp32 scalar.
torch::Tensor soft_target_loss(const torch::Tensor& student, const torch::Tensor& teacher, double temperature,
                               const torch::Tensor& rows = {});

/// The losses of hidden states and relations in one batch. Tensors are [T, H] of any floating dtype, and H may differ
/// between student and teacher; results are fp32 scalars.
class TokenLosses {
 public:
  explicit TokenLosses(const PackedBatch& batch);

  [[nodiscard]] torch::Tensor hidden(const torch::Tensor& student, const torch::Tensor& teacher) const;

  /// The two sides of a relation: query and key, or the values twice.
  struct Relation {
    torch::Tensor from, to;  // [T, H]
  };
  /// `heads` must divide both hidden sizes. Takes memory for some [B, heads, S, S] values.
  [[nodiscard]] torch::Tensor relation(const Relation& student, const Relation& teacher, int64_t heads) const;

 private:
  /// The cosine of each pair of tokens of a sequence, 0 at padding: [T, H] -> [B, S, S].
  [[nodiscard]] torch::Tensor cosines(const torch::Tensor& hidden) const;
  /// The logarithm of softmax(from to^T / sqrt(D)), -inf for keys at padding: [B, heads, S, S].
  [[nodiscard]] torch::Tensor log_relation(const Relation& relation, int64_t heads) const;

  PackedInput places_;
  torch::Tensor lengths_;  // [B] fp32
  torch::Tensor padding_;  // [B, 1, 1, S], true behind the ends of sequences
  double tokens_;
};

}  // namespace bert
