// Every module of BERT, in reading order: embeddings, attention, layer, encoder, pooler, heads, whole models.
// Member name, registered name and Hugging Face's state-dict key are equal.
// B batch, S sequence, T real tokens, M masked tokens, H hidden, A heads, D head size, L layers, I intermediate size, V
// vocabulary.
//
// A new module has the initial values that init_weights() describes, drawn from LibTorch's default generator of the CPU
// (torch::manual_seed). NoInitWeights saves this work where weights are loaded next.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cuda_ext/fp8_linear.h"
#include "cuda_ext/ops.h"
#include "cuda_ext/packed_batch.h"
#include "cuda_ext/window_pooling.h"
#include "model/config.h"

namespace bert {

/// Throws c10::Error that lists every problem of `config`.
void check(const BertConfig& config);

/// The form of GELU that config.hidden_act selects.
ops::Gelu gelu_form(const BertConfig& config);

// ---- packed and padded batches ----

/// A padded batch in packed form, and the way back.
struct PackedInput {
  PackedBatch batch;   // without masked positions and labels
  torch::Tensor rows;  // [T], positions of the real tokens in the flattened [B * S]
  int64_t batch_size = 0, sequence_length = 0;

  /// Lays out one value a token, [T, ...], as [B, S, ...] with zeros at padding. Differentiable.
  [[nodiscard]] torch::Tensor unpack(const torch::Tensor& x) const;
};

/// Packs input_ids, token_type_ids and attention_mask, int64 [B, S]. Undefined token_type_ids are zeros, an undefined
/// mask is ones. The position of a token is its column. The sequences get the numbers from `first_sequence` on in their
/// dropout keys. Waits for the device. Throws c10::Error for other shapes, ids out of range, S >
/// max_position_embeddings, and a row whose mask does not begin with 1 (padding stands on the right; the first token is
/// [CLS]).
PackedInput pack(const BertConfig& config, const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                 const torch::Tensor& attention_mask, int64_t first_sequence = 0);

/// Values of a forward pass, with their gradients, for losses on them.
struct EncoderTaps {
  std::vector<torch::Tensor> hidden_states;  // [T, H] of each layer, the first layer first
  torch::Tensor qkv;                         // [T, 3H] of the last layer: query | key | value
};

/// The scales in FP8 of an encoder layer's linear layers; undefined tensors: none of them is in FP8.
struct Fp8Layer {
  ops::Fp8Scaling qkv, attention_output, intermediate, output;
};

/// The properties of a batch that the layers need beside its hidden states.
struct PackedContext {
  torch::Tensor cu_seqlens;    // [B + 1] int32
  torch::Tensor dropout_keys;  // [T]
  int64_t max_seqlen = 0;
  int64_t dropout_seed = 0;
  bool training = false;
  torch::Tensor* qkv = nullptr;   // gets query, key and value of the attention, [T, 3H]; nullptr: nobody wants them
  const Fp8Layer* fp8 = nullptr;  // of the layer; nullptr: its products are not in FP8

  /// Dropout of probability p at a site of philox.h. Does nothing in evaluation.
  [[nodiscard]] ops::Dropout dropout(double p, uint32_t site) const;
};

// ---- leaves ----

/// y = x weight^T + bias. weight [N, K], bias [N]. `fused_activation` marks a layer whose activation is part of the
/// layer in NVIDIA's reference; it has other initial values there: Note [NVIDIA's initialisation].
struct LinearImpl : torch::nn::Module {
  LinearImpl(const BertConfig& config, int64_t in_features, int64_t out_features, bool has_fused_activation = false);
  torch::Tensor forward(const torch::Tensor& x);
  torch::Tensor weight, bias;
  const bool fused_activation;
};
TORCH_MODULE(Linear);

/// A table of `num_embeddings` rows. The operator that fuses the three tables reads it. weight [N, H].
struct EmbeddingImpl : torch::nn::Module {
  EmbeddingImpl(const BertConfig& config, int64_t num_embeddings);
  torch::Tensor weight;
};
TORCH_MODULE(Embedding);

/// weight and bias [H]. Fused operators read them together with the work before the normalisation.
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
/// The three projections keep their names, their optimizer state and their trust ratios, and run as one GEMM: the
/// weights are views of one [3H, H] storage, the biases of one [3H] storage. New storage for a parameter would break
/// this, so to() restores it. load_state_dict and init_weights write in place and keep it.
struct BertSelfAttentionImpl : torch::nn::Module {
  BertSelfAttentionImpl(const BertConfig& config, uint32_t layer_index);
  torch::Tensor forward(const torch::Tensor& hidden_states, const PackedContext& context);
  /// forward() from query, key and value on, [T, 3H].
  torch::Tensor attend(const torch::Tensor& qkv, const PackedContext& context);

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

/// LayerNorm(dropout(dense(hidden_states)) + input). Used after attention (I = H) and after the feed-forward layer.
struct BertOutputImpl : torch::nn::Module {
  BertOutputImpl(const BertConfig& config, int64_t in_features, uint32_t dropout_site);
  torch::Tensor forward(const torch::Tensor& hidden_states, const torch::Tensor& input, const PackedContext& context);
  /// forward() from the product of hidden_states and dense->weight on.
  torch::Tensor normalize(const torch::Tensor& product, const torch::Tensor& input, const PackedContext& context);
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

 private:
  torch::Tensor forward_in_fp8(const torch::Tensor& hidden_states, const PackedContext& context);
};
TORCH_MODULE(BertLayer);

/// All layers in order.
///
/// Note [Gradient checkpointing]
/// With gradient_checkpointing, a layer in training keeps only its input, H elements a token, and runs again in
/// backward (model/recompute.h). The gradients have the same bits, because dropout is a pure function of keys. The
/// encoder does four thirds of the work. Without it, a layer of BERT-base keeps some 16 H elements a token: Note [Memory
/// of a layer] in app/plan/memory.h has the formula. The layer whose backward is running needs these in both cases.
/// With `taps`, the last layer does not run again: its query, key and value need their gradients. Its backward comes
/// first, so the most memory stays the same.
struct BertEncoderImpl : torch::nn::Module {
  explicit BertEncoderImpl(const BertConfig& config);
  torch::Tensor forward(torch::Tensor hidden_states, const PackedContext& context);
  bool gradient_checkpointing = false;
  std::vector<Fp8Layer> fp8;    // of each layer, for training; empty: no products in FP8
  EncoderTaps* taps = nullptr;  // gets the values of each forward pass; nullptr: nobody wants them
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

/// Embeddings, encoder and, for heads that need it, the pooler.
///
/// Note [Sequences of the padded interface]
/// Dropout is a pure function of a seed and of the number of a sequence in the run (Note [Dropout keys], philox.h). A
/// padded batch has no such numbers. So in training the padded forward of this model, and of the models that contain
/// it, numbers the sequences in the order of the calls: sequences_seen counts them, and masks differ from call to call.
/// In evaluation the count stays. It is not a buffer, so it is in no state dict: a program that resumes sets it,
/// together with its seed, to draw the same masks. The packed forward uses the keys of its batch and does not count.
struct BertModelImpl : torch::nn::Module {
  explicit BertModelImpl(const BertConfig& config, bool add_pooling_layer = true);
  /// Packed. Dropout masks are drawn with `dropout_seed` (unused in evaluation). Throws c10::Error for a malformed
  /// batch.
  BertModelOutput forward(const PackedBatch& batch, int64_t dropout_seed = 0);
  BertModelOutput forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                          const torch::Tensor& attention_mask, int64_t dropout_seed = 0);
  /// pack() with numbers from sequences_seen on; counts them in training.
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
/// decoder's weight is the word embedding. It belongs to the embeddings and is passed in: named_parameters() would list
/// a second registration, and an optimizer would update it twice.
struct BertLMPredictionHeadImpl : torch::nn::Module {
  explicit BertLMPredictionHeadImpl(const BertConfig& config);
  torch::Tensor forward(const torch::Tensor& hidden_states, const torch::Tensor& word_embeddings);
  BertPredictionHeadTransform transform;
  torch::Tensor bias;  // [V]
};
TORCH_MODULE(BertLMPredictionHead);

/// The masked-token head and, for examples with pairs of segments, the sentence-pair head.
struct BertPreTrainingHeadsImpl : torch::nn::Module {
  explicit BertPreTrainingHeadsImpl(const BertConfig& config, bool sentence_pair_head = true);
  BertLMPredictionHead predictions;
  Linear seq_relationship{nullptr};
};
TORCH_MODULE(BertPreTrainingHeads);

// ---- models with heads: each has a packed and a padded forward (Note [Sequences of the padded interface]) ----

struct PretrainingOutput {
  torch::Tensor mlm_logits;  // [M, V], on CUDA [M, >= V], of the masked tokens; or [B, S, V] with zeros at padding
  torch::Tensor nsp_logits;  // [B, 2], of the sentence-pair head; undefined without it
};

struct PretrainingLoss {
  torch::Tensor total, mlm, nsp;  // fp32 scalars on the device; total = mlm + nsp
  torch::Tensor mlm_of_tokens;    // [M], without gradient; undefined unless the batch has masked_sources
};

/// Note [Objectives]
/// The sentence-pair head (pooler and cls.seq_relationship) tells the two labels of a pair of segments apart: next
/// sentence or random (BERT), or in order or swapped (ALBERT, where it is the sop_classifier). Training on masked tokens
/// alone has no pairs (RoBERTa); a model for it is made without this head, so that no parameter stays untrained. Its
/// state dict is then that of transformers' BertForMaskedLM.
struct BertForPreTrainingImpl : torch::nn::Module {
  explicit BertForPreTrainingImpl(const BertConfig& config, bool sentence_pair_head = true);
  [[nodiscard]] bool has_sentence_pair_head() const { return !cls->seq_relationship.is_empty(); }
  /// Packed. Dropout masks are drawn with `dropout_seed` (unused in evaluation).
  PretrainingOutput forward(const PackedBatch& batch);
  PretrainingOutput forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                            const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  BertPreTrainingHeads cls;
};
TORCH_MODULE(BertForPreTraining);

/// The beginnings of the names of the parameters that a model without the sentence-pair head lacks.
inline constexpr std::array<const char*, 2> kSentencePairParameters = {"bert.pooler.", "cls.seq_relationship."};

/// Mean cross entropy of the masked tokens plus that of the sentence pairs. The latter is 0 if the model has no
/// sentence-pair head or batch.next_sentence_labels is undefined.
PretrainingLoss pretraining_loss(const PretrainingOutput& output, const PackedBatch& batch, int64_t vocab_size);
/// The same with another loss of the masked tokens, a scalar.
PretrainingLoss add_sentence_pair_loss(const torch::Tensor& mlm, const PretrainingOutput& output,
                                       const PackedBatch& batch);

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

/// Logits [B, C], one row a sequence, or, of a batch with windows, [N, C], one row a text. C = 1 is regression.
struct BertForSequenceClassificationImpl : torch::nn::Module {
  BertForSequenceClassificationImpl(const BertConfig& config, int64_t num_labels,
                                    WindowPooling window_pooling = WindowPooling::kMean);
  torch::Tensor forward(const PackedBatch& batch);
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
  const WindowPooling window_pooling;
  torch::Tensor window_attention;  // [H], a parameter of WindowPooling::kAttention alone; it begins as the mean, zeros
};
TORCH_MODULE(BertForSequenceClassification);

/// Logits [T, C], one row a token, or [B, S, C] with zeros at padding.
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

/// Logits [N, C] of N questions with C choices each. Every choice is a sequence.
struct BertForMultipleChoiceImpl : torch::nn::Module {
  explicit BertForMultipleChoiceImpl(const BertConfig& config);
  /// Packed: sequence n * num_choices + c is choice c of question n.
  torch::Tensor forward(const PackedBatch& batch, int64_t num_choices);
  /// Padded: tensors of [N, C, S].
  torch::Tensor forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                        const torch::Tensor& attention_mask);
  int64_t dropout_seed = 0;
  BertModel bert;
  Linear classifier;
};
TORCH_MODULE(BertForMultipleChoice);

// ---- initial weights ----

/// While one exists, the modules that its thread constructs draw no weights: Linear and Embedding then have whatever is
/// in the memory. For code that fills all weights next, with load_state_dict() or init_weights(). May be nested.
class NoInitWeights {
 public:
  NoInitWeights();
  ~NoInitWeights();
  NoInitWeights(const NoInitWeights&) = delete;
  NoInitWeights& operator=(const NoInitWeights&) = delete;
  /// True if none exists in this thread.
  static bool none();

 private:
  bool outermost_;
};

/// Initialises every parameter anew, as config.init says. "bert": weights from a normal distribution cut at two standard
/// deviations (initializer_range), biases 0, LayerNorm 1 and 0. "nvidia": Note [NVIDIA's initialisation]. The values
/// depend on `seed` and the structure of the module only. Source: Google's modeling.py, create_initializer.
void init_weights(torch::nn::Module& module, const BertConfig& config, uint64_t seed);

}  // namespace bert
