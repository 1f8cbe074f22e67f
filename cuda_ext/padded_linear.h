// A product whose result has more columns than the weight has rows: what a vocabulary of any size needs on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace bert::ops {

/// y = x weight^T + bias with `columns` columns, of which those from N on are 0 and give no gradient. x [T, K], weight
/// [N, K], bias [N], columns >= N. Differentiable, and follows autocast, as linear() of ops.h.
///
/// Note [Padded vocabulary]
/// cuBLAS wants rows of whole 16-byte vectors, and has slower products for others. BERT's 30,522 words are no multiple
/// of 8, so neither the logits nor their gradient had such rows, hence none of the three products of the vocabulary
/// head. Here they have. The weight gets its missing rows while it is converted to the low precision, which autocast
/// does once per micro-batch in any case; where nothing is converted it costs a copy of the table (2 V H elements
/// through memory beside 6 M V H operations). Parameters, optimizer state and checkpoints know nothing of it, and the
/// gradient of the N rows is a view of the product's.
at::Tensor padded_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t columns);

}  // namespace bert::ops
