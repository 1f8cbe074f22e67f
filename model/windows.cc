#include "model/windows.h"

#include <ATen/ops/mv.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>

#include <limits>
#include <vector>

namespace bert {

at::Tensor join_windows(WindowPooling pooling, const at::Tensor& logits, const at::Tensor& windows,
                        const at::Tensor& scores) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  const at::Tensor absent = windows.lt(0), rows = windows.clamp_min(0).flatten();
  const auto in_rows = [&](const at::Tensor& x, double fill, const at::Tensor& where) {
    std::vector<int64_t> shape = windows.sizes().vec();
    if (x.dim() == 2) shape.push_back(x.size(1));
    return x.index_select(0, rows).view(shape).masked_fill(where, fill);
  };
  const at::Tensor absent_logits = absent.unsqueeze(-1);
  switch (pooling) {
    case WindowPooling::kFirst:
      return logits.index_select(0, windows.select(1, 0));
    case WindowPooling::kMax:
      return in_rows(logits, kNone, absent_logits).amax(1);
    case WindowPooling::kMean:
      return in_rows(logits, 0, absent_logits).sum(1) / (windows.size(1) - absent.sum(1, /*keepdim=*/true));
    case WindowPooling::kAttention:
      break;
  }
  TORCH_CHECK(scores.defined(), "join_windows: attention wants the scores of the windows.");
  const at::Tensor weights = in_rows(scores, kNone, absent).softmax(1).unsqueeze(-1);
  return (in_rows(logits, 0, absent_logits) * weights).sum(1);
}

at::Tensor window_scores(const at::Tensor& pooler_output, const at::Tensor& attention) {
  return at::mv(pooler_output, attention);
}

}  // namespace bert
