#include "app/finetune/distillation_losses.h"

#include <torch/types.h>

#include <cmath>
#include <limits>

namespace bert {
namespace {

constexpr double kNowhere = -std::numeric_limits<double>::infinity();

/// KL divergence of rows of log-probabilities: [..., C] -> [...]. -inf in both is no class.
torch::Tensor divergence(const torch::Tensor& log_teacher, const torch::Tensor& log_student) {
  const torch::Tensor terms = log_teacher.exp() * (log_teacher - log_student);
  return terms.masked_fill(log_teacher.isneginf(), 0.0).sum(-1);
}

}  // namespace

PackedInput padded_places(const PackedBatch& batch) {
  const torch::Tensor lengths = batch.cu_seqlens.diff().to(torch::kLong);
  const torch::Tensor sequence = at::repeat_interleave(at::arange(batch.num_sequences(), lengths.options()), lengths,
                                                       /*dim=*/0, /*output_size=*/batch.num_tokens());
  return {.batch = {},
          .rows = sequence * batch.max_seqlen + batch.position_ids,
          .batch_size = batch.num_sequences(),
          .sequence_length = batch.max_seqlen};
}

torch::Tensor answer_logits(const torch::Tensor& logits, const PackedBatch& batch) {
  const PackedInput places = padded_places(batch);
  const int64_t sequences = places.batch_size, longest = places.sequence_length;
  return at::full({sequences * longest, 2}, kNowhere, logits.options())
      .index_copy(0, places.rows, logits)
      .view({sequences, longest, 2})
      .transpose(1, 2);
}

torch::Tensor soft_target_loss(const torch::Tensor& student, const torch::Tensor& teacher, double temperature,
                               const torch::Tensor& rows) {
  const auto log_probabilities = [&](const torch::Tensor& logits) {
    return at::log_softmax(logits.to(torch::kFloat) / temperature, -1);
  };
  const torch::Tensor of_rows = divergence(log_probabilities(teacher), log_probabilities(student));
  const torch::Tensor mean = rows.defined() ? of_rows.masked_fill(~rows, 0.0).sum() / rows.sum() : of_rows.mean();
  return mean * (temperature * temperature);
}

TokenLosses::TokenLosses(const PackedBatch& batch)
    : places_(padded_places(batch)),
      lengths_(batch.cu_seqlens.diff().to(torch::kFloat)),
      padding_(at::arange(batch.max_seqlen, lengths_.options())
                   .ge(lengths_.unsqueeze(1))
                   .view({batch.num_sequences(), 1, 1, batch.max_seqlen})),
      tokens_(static_cast<double>(batch.num_tokens())) {}

torch::Tensor TokenLosses::cosines(const torch::Tensor& hidden) const {
  constexpr double kLeastNorm = 1e-8;  // as at::cosine_similarity()
  const torch::Tensor x = hidden.to(torch::kFloat);
  const torch::Tensor padded = places_.unpack(x / x.norm(2, 1, /*keepdim=*/true).clamp_min(kLeastNorm));
  return padded.matmul(padded.transpose(1, 2));
}

torch::Tensor TokenLosses::hidden(const torch::Tensor& student, const torch::Tensor& teacher) const {
  if (student.size(1) == teacher.size(1))
    return 1 - at::cosine_similarity(student.to(torch::kFloat), teacher.to(torch::kFloat), 1).mean();
  const torch::Tensor of_sequences = (cosines(student) - cosines(teacher)).square().sum({1, 2});
  return (of_sequences / lengths_).sum() / tokens_;
}

torch::Tensor TokenLosses::log_relation(const Relation& relation, int64_t heads) const {
  const int64_t head_size = relation.from.size(1) / heads;
  const auto divided = [&](const torch::Tensor& x) {
    return places_.unpack(x.to(torch::kFloat))
        .view({places_.batch_size, places_.sequence_length, heads, head_size})
        .transpose(1, 2);
  };
  const torch::Tensor scores = divided(relation.from).matmul(divided(relation.to).transpose(2, 3));
  return at::log_softmax((scores / std::sqrt(static_cast<double>(head_size))).masked_fill(padding_, kNowhere), -1);
}

torch::Tensor TokenLosses::relation(const Relation& student, const Relation& teacher, int64_t heads) const {
  // Rows of padding are equal in both: 0.
  return divergence(log_relation(teacher, heads), log_relation(student, heads)).sum() /
         (tokens_ * static_cast<double>(heads));
}

}  // namespace bert
