// Every module of BERT, in reading order. Member name == registered name == Hugging Face's state-dict key.
#pragma once

#include <torch/nn/cloneable.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "cuda_ext/ops.h"
#include "cuda_ext/packed_batch.h"
#include "model/config.h"

namespace bert {

/// Throws c10::Error naming the field, its value and what it must be.
void check(const BertConfig& config);

/// Hidden states of packed tokens and what the layers need to know of the batch.
struct PackedContext {
  torch::Tensor cu_seqlens;     // [B + 1] int32
  torch::Tensor dropout_keys;   // [T]
  int64_t max_seqlen = 0;
  int64_t dropout_seed = 0;
  bool training = false;
};

// THE FINAL MODULE LIST IS THE MODEL AUTHOR'S; what the trainer uses is below.

struct PretrainingOutput {
  torch::Tensor mlm_logits;  // [M, V], the masked rows only
  torch::Tensor nsp_logits;  // [B, 2]
};

struct PretrainingLoss {
  torch::Tensor total, mlm, nsp;  // fp32 scalars on the device; total = mlm + nsp
};

struct BertForPreTrainingImpl : torch::nn::Module {
  explicit BertForPreTrainingImpl(const BertConfig& config);
  /// Packed. Masks of dropout are drawn with `dropout_seed` (unused in evaluation).
  PretrainingOutput forward(const PackedBatch& batch);
  int64_t dropout_seed = 0;
};
TORCH_MODULE(BertForPreTraining);

/// Mean cross entropy of the masked tokens plus that of the next-sentence labels. NSP is left out where batch.next_sentence_labels is
/// undefined.
PretrainingLoss pretraining_loss(const PretrainingOutput& output, const PackedBatch& batch, int64_t vocab_size);

/// Initialises every parameter as config.init says. Deterministic in `seed`.
void init_weights(torch::nn::Module& module, const BertConfig& config, uint64_t seed);

}  // namespace bert
