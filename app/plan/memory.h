// Number of parameters of a model, and memory of a GPU that trains it; computed, not measured.
#pragma once

#include <cstdint>
#include <vector>

#include "app/config/pretrain_config.h"

namespace bert {

/// Number of elements of each parameter of BertForPreTraining, in the order of the module; the tied decoder counts
/// once.
std::vector<int64_t> parameter_sizes(const BertConfig& config, bool sentence_pair_head = true);

/// Sum of parameter_sizes().
int64_t parameter_count(const BertConfig& config, bool sentence_pair_head = true);

/// The share of the optimizer state on the rank that owns most of it; 1 unless the state is sharded. The model is that
/// of objective_of(config). Throws as check_sharding.
double owned_share(const PretrainConfig& config, int64_t ranks);

/// Note [Memory of a layer]
/// The bytes of a token that the forward of one encoder layer keeps for its backward, with hidden size H, intermediate
/// size I, A heads and values of `compute_bytes`:
///
///   (8 H + 2 I) compute_bytes + (A + 4) 4
///
/// 8 H: the layer's input (1), query, key and value (3), the result of attention (1) and its projection (1), the result
/// of the first LayerNorm (1), and the input of the second (1). 2 I: the values before and after GELU. A: the
/// log-sum-exp of each head, fp32. 4: mean and reciprocal standard deviation of the two LayerNorms, fp32. The CPU also
/// keeps the bits of the dropout masks. With gradient checkpointing a layer keeps its input alone (Note [Gradient
/// checkpointing] in model/bert.h).
double layer_bytes_per_token(const BertConfig& config, double compute_bytes);

/// Bytes on one GPU.
struct MemoryPlan {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  [[nodiscard]] double total() const { return weights + gradients + optimizer + activations; }
};

/// Gradients are fp32; low-precision weights have fp32 masters. Activations are the values that forward keeps for
/// backward (Note [Memory of a layer]) and the logits of the masked tokens. The result is a lower bound: workspaces and
/// fragmentation are left out. The model is that of objective_of(config). The optimizer state is the largest of `ranks` shares if it is sharded.
MemoryPlan plan_memory(const PretrainConfig& config, double tokens_per_sequence, double masked_per_sequence,
                       int64_t ranks);

}  // namespace bert
