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

/// parameter_sizes() of the model that `config` trains with its objective; objective_of(config) decides about the head.
std::vector<int64_t> parameter_sizes(const PretrainConfig& config);

/// The share of the optimizer state on the rank that owns most of it; 1 unless the state is sharded. `parameters` are
/// the sizes of the model's. Throws as check_sharding.
double owned_share(const RunConfig& config, const std::vector<int64_t>& parameters, int64_t ranks);

/// Note [Memory of a layer]
/// The bytes of a token that the forward of one encoder layer keeps for its backward, with hidden size H, intermediate
/// size I, A heads and values of `compute_bytes`:
///
///   (8 H + 2 I) compute_bytes + (A + 4) 4
///
/// 8 H: the layer's input (1), query, key and value (3), the result of attention (1) and its projection (1), the result
/// of the first LayerNorm (1), and the input of the second (1). 2 I: the values before and after GELU. A: the
/// log-sum-exp of each head, fp32. 4: mean and reciprocal standard deviation of the two LayerNorms, fp32. The CPU also
/// keeps the bits of the dropout masks. In FP8 the products keep a byte of each value of their inputs: 3 H more, for the
/// layer's input and the results of attention and of the first LayerNorm, whose values of 2 bytes stay, and I less, for
/// the values after GELU. Their weights take a byte instead of two. With gradient checkpointing a layer keeps its input
/// alone (Note [Gradient checkpointing] in model/bert.h).
double layer_bytes_per_token(const BertConfig& config, double compute_bytes);

/// Bytes on one GPU.
struct MemoryPlan {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  double beside_graphs = 0;  // evaluation_bytes(), with graphs
  [[nodiscard]] double total() const { return weights + gradients + optimizer + activations + beside_graphs; }
};

/// A sequence, or the mean of several.
struct SequenceSize {
  double tokens = 0, masked = 0;
};

/// Note [Peaks of a step]
/// A GPU holds most activations at one of these moments. T tokens, M of them masked, in sequences of S; N layers that
/// keep K values of a token; vocabulary V; the other letters are those of Note [Memory of a layer].
///
///   backward of the last layer   T (N K + 2 H + I): the embeddings' result, a gradient of each width
///   its attention, in fp32 with  T (N K + 9 H + 2 A S): ATen operators compose it
///   dropout
///   loss                         T (N K + H) + M (V + 5 H): logits, which become their gradient in place, four values
///                                of the head and a gradient; and the gradient of the decoder
///
/// With gradient checkpointing a layer keeps H values, and the backward of the last layer has K + H more. Then the
/// forward can be the peak, T (N H + H + 2 I): autocast's copies of all weights live until its end. Without
/// checkpointing they live until backward has read them.
///
/// Gradients are fp32; low-precision weights have fp32 masters; weights include autocast's copies. Workspaces and
/// fragmentation are left out. LibTorch's allocator holds 0.97 to 1.05 times the total (BERT-base that fills 4 to 80 GB,
/// tests/null_device/tests/memory_test.cc). `parameters` are the sizes of the model's. The optimizer state is the
/// largest of `ranks` shares if it is sharded.
MemoryPlan plan_memory(const RunConfig& config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                       int64_t ranks);

/// Sequences that an evaluation computes at once; its figures do not depend on it.
inline constexpr int64_t kEvaluationBatch = 32;

/// The bytes of an evaluation of `sequences` sequences at once beside the weights: autocast's copies of these, and either
/// the widest layer or the logits. Without graphs they lie where a step's activations were; graphs keep their memory
/// (Note [Graphs of a step] in app/train/step/step_graphs.h).
double evaluation_bytes(const RunConfig& config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                        int64_t sequences);

/// The bytes of `free` ones that a plan may fill. The rest is for what plan_memory() leaves out. On a GPU that is
/// workspaces of cuBLAS and gaps between the blocks of LibTorch's allocator, with gradient checkpointing more of them.
/// The largest plans of BERT-base that fit into 4, 8 and 80 GB fill 87, 94 and 98 % of these, with gradient
/// checkpointing 91, 93 and 94 %. On a CPU BERT-base took 1.09 to 1.16 times the plan (4 to 48 sequences of 128 tokens,
/// fp32 and bf16).
double plannable_bytes(const RunConfig& config, double free, bool is_gpu);

/// The largest micro_batch_size that divides config.batch_divisor(), leaves each of `ranks` a micro-batch, and has a
/// plan_memory() of at most `bytes`; 0 if no size has. config.micro_batch_size is not used.
int64_t largest_micro_batch(RunConfig config, const std::vector<int64_t>& parameters, const SequenceSize& sequence,
                            int64_t ranks, double bytes);

}  // namespace bert
