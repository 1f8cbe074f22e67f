// Every module of BERT, in reading order: embeddings, attention, layer, encoder, pooler, heads, whole models.
// Member name == registered name == Hugging Face's state-dict key.
// B batch, S sequence, T real tokens, M masked tokens, H hidden, A heads, D head size, L layers, I intermediate size, V
// vocabulary.
//
// Parameters hold no values until init_weights or load_state_dict: a model that is about to be loaded pays for no
// random numbers.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "cuda_ext/ops.h"
#include "cuda_ext/packed_batch.h"
#include "model/config.h"

namespace bert {

/// Throws c10::Error that lists every problem of `config`.
void check(const BertConfig& config);

/// The GELU that config.hidden_act names.
ops::Gelu gelu_form(const BertConfig& config);

// ---- packed and padded batches ----

/// A padded batch without its padding, and the way back.
struct PackedInput {
  PackedBatch batch;   // no masked positions, no labels
  torch::Tensor rows;  // [T], the places of the real tokens in the flattened [B * S]
  int64_t batch_size = 0, sequence_length = 0;

  /// One value per token, [T, ...], as [B, S, ...] with zeros at padding. Differentiable.
  [[nodiscard]] torch::Tensor unpack(const torch::Tensor& x) const;
};

/// Packs input_ids, token_type_ids, attention_mask, int64 [B, S]. Undefined token_type_ids are zeros, an undefined mask
/// is ones. A token keeps its column as its position. Throws c10::Error for other shapes, ids out of range, S >
/// max_position_embeddings, and a row whose mask does not begin with 1 (padding stands on the right; the first token is
/// [CLS]). Dropout keys number the sequences from `first_sequence`. Waits for the device.
PackedInput pack(const BertConfig& config, const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                 const torch::Tensor& attention_mask, int64_t first_sequence = 0);

/// What the layers need to know of a batch beside its hidden states.
struct PackedContext {
  torch::Tensor cu_seqlens;    // [B + 1] int32
  torch::Tensor dropout_keys;  // [T]
  int64_t max_seqlen = 0;
  int64_t dropout_seed = 0;
  bool training = false;

  /// Dropout of probability p at a site of philox.h; none in evaluation.
  [[nodiscard]] ops::Dropout dropout(double p, uint32_t site) const;
};

// ---- leaves ----

/// y = x weight^T + bias. weight [N, K], bias [N].
struct LinearImpl : torch::nn::Module {
  LinearImpl(int64_t in_features, int64_t out_features);
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor weight, bias;
};
TORCH_MODULE(Linear);

/// A table of `num_embeddings` rows; the op that fuses the three tables reads it. weight [N, H].
struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(int64_t num_embeddings, int64_t embedding_dim);
  torch::Tensor weight;
};
TORCH_MODULE(Embedding);

/// weight and bias [H]; fused ops read it together with what precedes it.
struct LayerNormImpl : torch::nn::Module {
  LayerNormImpl(int64_t hidden_size, double eps);
  torch::Tensor forward(const torch::Tensor& x);
  double eps;
  torch::Tensor weight, bias;
};
TORCH_MODULE(LayerNorm);

// ---- embeddings and encoder ----

/// dropout(LayerNorm(word + position + token type)). Returns [T, H].
struct BertEmbeddingsImpl : torch::nn::Module {
  explicit BertEmbeddingsImpl(const BertConfig& config);
  torch::Tensor forward(const PackedBatch& batch, const PackedContext& context);
  double hidden_dropout_prob;
  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  bert::LayerNorm LayerNorm;
};
TORCH_MODULE(BertEmbeddings);

/// Query, key and value in one GEMM, then attention within each sequence. Returns [T, H].
///
/// Note [One storage for query, key and value]
/// The three projections keep their names, their optimizer state and their trust ratios, and still run as one GEMM: the
/// weights are views of one [3H, H] storage, the biases of one [3H]. Whatever gives parameters new storage undoes that,
/// so to() makes it again; load_state_dict and init_weights write in place and keep it.
struct BertSelfAttentionImpl : torch::nn::Module {
  BertSelfAttentionImpl(const BertConfig& config, uint32_t layer_index);
  torch::Tensor forward(const torch::Tensor& hidden_states, const PackedContext& context);

  void to(torch::Device device, torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Dtype dtype, bool non_blocking = false) override;
  void to(torch::Device device, bool non_blocking = false) override;

  int64_t num_attention_heads;
  double attention_probs_dropout_prob;
  uint32_t layer_index;
  Linear query, key, value;

 private:
  void share_storage();
};
TORCH_MODULE(BertSelfAttention);

/// LayerNorm(dropout(dense(hidden_states)) + input). The same after attention (I = H) and after the feed-forward layer.
struct BertOutputImpl : torch::nn::Module {
  BertOutputImpl(const BertConfig& config, int64_t in_features, uint32_t dropout_site);
  torch::Tensor forward(const torch::Tensor& hidden_states, const torch::Tensor& input, const PackedContext& context);
  double hidden_dropout_prob;
  uint32_t site;
  Linear dense;
  bert::LayerNorm LayerNorm;
};
TORCH_MODULE(BertOutput);

struct BertAttentionImpl : torch::nn::Module {
  BertAttentionImpl(const BertConfig& config, uint32_t layer_index);
  torch::Tensor forward(const torch::Tensor& hidden_states, const PackedContext& context);
  BertSelfAttention self;
  BertOutput output;
};
TORCH_MODULE(BertAttention);

/// gelu(dense(x)). Returns [T, I].
struct BertIntermediateImpl : torch::nn::Module {
  explicit BertIntermediateImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden_states);
  ops::Gelu hidden_act;
  Linear dense;
};
TORCH_MODULE(BertIntermediate);

struct BertLayerImpl : torch::nn::Module {
  BertLayerImpl(const BertConfig& config, uint32_t layer_index);
  torch::Tensor forward(const torch::Tensor& hidden_states, const PackedContext& context);
  BertAttention attention;
  BertIntermediate intermediate;
  BertOutput output;
};
TORCH_MODULE(BertLayer);

/// The layers, one after another.
///
/// Note [Gradient checkpointing]
/// With gradient_checkpointing a layer in training keeps its input alone, H elements per token, and runs again in
/// backward (model/recompute.h): the same bits in the gradients, as dropout is a pure function of keys, and four thirds
/// of the encoder's work. Otherwise a layer keeps 8 H + 2 I + A + 4 elements per token (BERT-base: 16 times H), and on
/// the CPU the bits of its dropout masks. The layer that backward is in takes these either way.
struct BertEncoderImpl : torch::nn::Module {
  explicit BertEncoderImpl(const BertConfig& config);
  torch::Tensor forward(torch::Tensor hidden_states, const PackedContext& context);
  bool gradient_checkpointing = false;
  torch::nn::ModuleList layer;
};
TORCH_MODULE(BertEncoder);

/// tanh(dense(first token)). [T, H] -> [B, H].
struct BertPoolerImpl : torch::nn::Module {
  explicit BertPoolerImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden_states, const PackedContext& context);
  Linear dense;
};
TORCH_MODULE(BertPooler);

struct BertModelOutput {
  torch::Tensor last_hidden_state;  // [T, H], or [B, S, H] with zeros at padding
  torch::Tensor pooler_output;      // [B, H]; undefined without a pooler
};

/// Embeddings, encoder and, where a head needs it, the pooler.
///
/// Note [Sequences of the padded interface]
/// Dropout is a pure function of a seed and of what is dropped (Note [Dropout keys], philox.h), and a padded batch does
/// not say which sequences of a run it has. So in training the padded forward of this model, and of those that carry it, numbers
/// them in the order in which they come: sequences_seen counts them, and masks differ from call to call. In evaluation it
/// stays. It is no buffer, so no state dict has it: a program that resumes sets it, with its seed, to draw what it
/// would have drawn. The packed forward takes the keys of its batch and does not count.
struct BertModelImpl : torch::nn::Module {
  explicit BertModelImpl(const BertConfig& config, bool add_pooling_layer = true);
  /// Packed. Masks of dropout are drawn with `dropout_seed` (unused in evaluation). Throws c10::Error for a batch that
  /// is not one.
  BertModelOutput forward(const PackedBatch& batch, int64_t dropout_seed = 0);
  BertModelOutput forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                          const torch::Tensor& attention_mask, int64_t dropout_seed = 0);
  /// pack(), with the sequences' numbers in training.
  PackedInput pack(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                   const torch::Tensor& attention_mask);
  int64_t sequences_seen = 0;
  const BertConfig config;
  BertEmbeddings embeddings;
  BertEncoder encoder;
  BertPooler pooler{nullptr};
};
TORCH_MODULE(BertModel);

// ---- heads ----

/// LayerNorm(gelu(dense(x))). [M, H] -> [M, H].
struct BertPredictionHeadTransformImpl : torch::nn::Module {
  explicit BertPredictionHeadTransformImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden_states);
  ops::Gelu hidden_act;
  Linear dense;
  bert::LayerNorm LayerNorm;
};
TORCH_MODULE(BertPredictionHeadTransform);

/// Logits over the vocabulary, [M, H] -> [M, V], on CUDA with padding: Note [Padded vocabulary], padded_linear.h. The
/// decoder's weight is the word embedding: it belongs to the embeddings and is passed in, because named_parameters()
/// would list a second registration and an optimizer would update it twice.
struct BertLMPredictionHeadImpl : torch::nn::Module {
  explicit BertLMPredictionHeadImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden_states, const torch::Tensor& word_embeddings);
  BertPredictionHeadTransform transform;
  torch::Tensor bias;  // [V]
};
TORCH_MODULE(BertLMPredictionHead);

/// The masked-token and the next-sentence head.
struct BertPreTrainingHeadsImpl : torch::nn::Module {
  explicit BertPreTrainingHeadsImpl(const BertConfig& config);
  BertLMPredictionHead predictions;
  Linear seq_relationship;
};
TORCH_MODULE(BertPreTrainingHeads);

// ---- models with heads: forward is packed, or padded for people (Note [Sequences of the padded interface]) ----

struct PretrainingOutput {
  torch::Tensor mlm_logits;  // [M, V], on CUDA [M, >= V], the masked rows only; or [B, S, V] with zeros at padding
  torch::Tensor nsp_logits;  // [B, 2]
};

struct PretrainingLoss {
  torch::Tensor total, mlm, nsp;  // fp32 scalars on the device; total = mlm + nsp
};

struct BertForPreTrainingImpl : torch::nn::Module {
  explicit BertForPreTrainingImpl(const BertConfig& config);
  /// Packed. Masks of dropout are drawn with `dropout_seed` (unused in evaluation).
  PretrainingOutput forward(const PackedBatch& batch);
  PretrainingOutput forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                            const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  BertPreTrainingHeads cls;
};
TORCH_MODULE(BertForPreTraining);

/// Mean cross entropy of the masked tokens plus that of the next-sentence labels. NSP is left out where
/// batch.next_sentence_labels is undefined.
PretrainingLoss pretraining_loss(const PretrainingOutput& output, const PackedBatch& batch, int64_t vocab_size);

struct QuestionAnsweringOutput {
  torch::Tensor start_logits, end_logits;  // [T], or [B, S] with zeros at padding
};

struct BertForQuestionAnsweringImpl : torch::nn::Module {
  explicit BertForQuestionAnsweringImpl(const BertConfig& config);
  QuestionAnsweringOutput forward(const PackedBatch& batch);
  QuestionAnsweringOutput forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                  const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear qa_outputs;
};
TORCH_MODULE(BertForQuestionAnswering);

/// Logits [B, C] of each sequence. C = 1 is regression.
struct BertForSequenceClassificationImpl : torch::nn::Module {
  BertForSequenceClassificationImpl(const BertConfig& config, int64_t num_labels);
  torch::Tensor forward(const PackedBatch& batch);
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
};
TORCH_MODULE(BertForSequenceClassification);

/// Logits [T, C] of each token, or [B, S, C] with zeros at padding.
struct BertForTokenClassificationImpl : torch::nn::Module {
  BertForTokenClassificationImpl(const BertConfig& config, int64_t num_labels);
  torch::Tensor forward(const PackedBatch& batch);
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
};
TORCH_MODULE(BertForTokenClassification);

/// Logits [N, C] of N questions with C choices each; every choice is a sequence.
struct BertForMultipleChoiceImpl : torch::nn::Module {
  explicit BertForMultipleChoiceImpl(const BertConfig& config);
  /// Packed: sequence n * num_choices + c is choice c of question n.
  torch::Tensor forward(const PackedBatch& batch, int64_t num_choices);
  /// Padded: [N, C, S] each.
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
};
TORCH_MODULE(BertForMultipleChoice);

/// Initialises every parameter as config.init says: "bert" draws weights from a normal distribution cut at two standard
/// deviations (initializer_range), biases 0, LayerNorm 1 and 0; "nvidia" is Note [NVIDIA's initialisation]. The result
/// is a function of `seed` and the module's structure alone. Source: Google's modeling.py, create_initializer.
void init_weights(torch::nn::Module& module, const BertConfig& config, uint64_t seed);

}  // namespace bert
