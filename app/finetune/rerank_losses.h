// The losses of cross-encoders over the passages of a query.
//
// Note [Losses of rerankers]
// The definitions are those of sentence-transformers 5.7 (cross_encoder/losses), for a row of logits, the positive first:
//   cross_entropy  cross entropy of the positive over the row's logits: CrossEntropyLoss with the passages as classes
//   margin_mse     mean squared difference of the positive's logit minus the negative's, and the label: MarginMSELoss
// Classes of pairs are the task text-classification with data.text_pair_column.
#pragma once

#include <ATen/core/Tensor.h>

#include "app/config/rerank_config.h"

namespace bert {

/// The mean loss of N rows of logits [N, C], a scalar of their dtype. `labels`: [N], read by kMarginMse, whose rows have
/// two logits.
at::Tensor rerank_loss(RerankLoss loss, const at::Tensor& logits, const at::Tensor& labels);

}  // namespace bert
