#include "app/finetune/rerank_losses.h"

#include <torch/types.h>

namespace bert {

at::Tensor rerank_loss(RerankLoss loss, const at::Tensor& logits, const at::Tensor& labels) {
  if (loss == RerankLoss::kMarginMse) return at::mse_loss(logits.select(1, 0) - logits.select(1, 1), labels);
  return (logits.logsumexp(1) - logits.select(1, 0)).mean();
}

}  // namespace bert
