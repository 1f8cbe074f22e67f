// A linear layer whose result has more columns than the weight has rows. A vocabulary whose size is not a multiple of 8
// needs it on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bert::ops {

/// y = x weight^T + bias with `columns` columns. Columns from N on are 0 and give no gradient. x [T, K], weight [N, K],
/// bias [N], columns >= N. Differentiable, and follows autocast, as linear() of ops.h.
///
/// Note [Padded vocabulary]
/// cuBLAS is fast for rows of whole 16-byte vectors. BERT's 30,522 words are not a multiple of 8, so neither the logits
/// nor their gradient would have such rows, and none of the three products of the vocabulary head would be fast. So the
/// weight gets extra rows of zeros while it is converted to the low precision, which autocast does once per micro-batch
/// in any case. Without a conversion this costs a copy of the table (2 V H elements through memory beside 6 M V H
/// operations). Parameters, optimizer state and checkpoints do not have the extra rows. The gradient of the N rows is a
/// view of the product's.
at::Tensor padded_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t columns);

}  // namespace bert::ops
