// The windows of a long text as one.
#pragma once

#include <ATen/core/Tensor.h>

#include "cuda_ext/window_pooling.h"

namespace bert {

/// Logits [N, C] of texts from those of their windows, [B, C], in the dtype of `logits`. `windows`: PackedBatch::windows,
/// [N, W]; the result does not depend on W. `scores` [B], of kAttention alone: a window weighs as much as the softmax over
/// its text's windows says. Differentiable.
at::Tensor join_windows(WindowPooling pooling, const at::Tensor& logits, const at::Tensor& windows,
                        const at::Tensor& scores = {});

/// The scores [B] of windows for kAttention: products of the pooler's outputs [B, H] with `attention` [H].
at::Tensor window_scores(const at::Tensor& pooler_output, const at::Tensor& attention);

}  // namespace bert
