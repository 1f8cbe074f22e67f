// The heads of pre-training and fine-tuning, and the models that carry them.
#include <ATen/ops/zeros.h>

#include "cuda_ext/padded_linear.h"
#include "cuda_ext/scalar/philox.h"
#include "model/bert.h"
#include "model/windows.h"

namespace bert {
namespace {

torch::Tensor first_rows(const PackedBatch& batch) { return batch.cu_seqlens.narrow(0, 0, batch.num_sequences()); }

/// PackedBatch::counted of the masked tokens (0) or the sequences (1); undefined: all count.
torch::Tensor counted(const PackedBatch& batch, int64_t which) {
  return batch.counted.defined() ? batch.counted.select(0, which) : torch::Tensor();
}

/// Columns of the logits: on CUDA whole 16-byte vectors of half precision, Note [Padded vocabulary]. Products on the
/// CPU gain nothing from that.
int64_t logit_columns(const torch::Tensor& word_embeddings) {
  constexpr int64_t kVector = 8;
  const int64_t words = word_embeddings.size(0);
  return word_embeddings.is_cuda() ? (words + kVector - 1) / kVector * kVector : words;
}

/// Dropout before a classifier. `rows` are the rows of the batch that x consists of; undefined: all rows.
torch::Tensor head_dropout(const torch::Tensor& x, const PackedBatch& batch, const torch::Tensor& rows, double p,
                           int64_t seed, bool training) {
  if (!training || p == 0.0) return x;
  const torch::Tensor keys = rows.defined() ? batch.dropout_keys.index_select(0, rows) : batch.dropout_keys;
  return ops::dropout(x, {.p = p, .seed = seed, .site = kHeadSite, .keys = keys});
}

}  // namespace

BertPredictionHeadTransformImpl::BertPredictionHeadTransformImpl(const BertConfig& config)
    : hidden_act(gelu_form(config)),
      dense(register_module("dense",
                            Linear(config, config.hidden_size, config.hidden_size, /*has_fused_activation=*/true))),
      LayerNorm(register_module("LayerNorm", bert::LayerNorm(config.hidden_size, config.layer_norm_eps))) {}

torch::Tensor BertPredictionHeadTransformImpl::forward(const torch::Tensor& hidden_states) {
  const torch::Tensor x = ops::bias_gelu(ops::linear(hidden_states, dense->weight, {}), dense->bias, hidden_act);
  return LayerNorm->forward(x);
}

BertLMPredictionHeadImpl::BertLMPredictionHeadImpl(const BertConfig& config)
    : transform(register_module("transform", BertPredictionHeadTransform(config))),
      bias(register_parameter("bias", at::zeros({config.vocab_size}))) {}

torch::Tensor BertLMPredictionHeadImpl::forward(const torch::Tensor& hidden_states,
                                                const torch::Tensor& word_embeddings) {
  const torch::Tensor x = transform->forward(hidden_states);
  const int64_t columns = logit_columns(word_embeddings);
  return columns == bias.size(0) ? ops::linear(x, word_embeddings, bias)
                                 : ops::padded_linear(x, word_embeddings, bias, columns);
}

BertPreTrainingHeadsImpl::BertPreTrainingHeadsImpl(const BertConfig& config, bool sentence_pair_head)
    : predictions(register_module("predictions", BertLMPredictionHead(config))) {
  if (sentence_pair_head) {
    seq_relationship = register_module("seq_relationship", Linear(config, config.hidden_size, 2));
  }
}

BertForPreTrainingImpl::BertForPreTrainingImpl(const BertConfig& config, bool sentence_pair_head)
    : bert(register_module("bert", BertModel(config, /*add_pooling_layer=*/sentence_pair_head))),
      cls(register_module("cls", BertPreTrainingHeads(config, sentence_pair_head))) {}

PretrainingOutput BertForPreTrainingImpl::forward(const PackedBatch& batch) {
  TORCH_CHECK(batch.masked_positions.defined(),
              "BertForPreTraining: the batch has no masked_positions. Name the rows whose logits are wanted; "
              "forward(input_ids, token_type_ids, attention_mask) gives those of every token.");
  const BertModelOutput output = bert->forward(batch, dropout_seed);
  const torch::Tensor masked = output.last_hidden_state.index_select(0, batch.masked_positions);
  PretrainingOutput result;
  result.mlm_logits = cls->predictions->forward(masked, bert->embeddings->word_embeddings->weight);
  if (has_sentence_pair_head()) result.nsp_logits = cls->seq_relationship->forward(output.pooler_output);
  return result;
}

PretrainingOutput BertForPreTrainingImpl::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                                  const torch::Tensor& attention_mask) {
  const PackedInput input = bert->pack(input_ids, token_type_ids, attention_mask);
  const BertModelOutput output = bert->forward(input.batch, dropout_seed);
  const torch::Tensor logits =
      cls->predictions->forward(output.last_hidden_state, bert->embeddings->word_embeddings->weight);
  PretrainingOutput result;
  result.mlm_logits = input.unpack(logits.narrow(1, 0, bert->config.vocab_size));
  if (has_sentence_pair_head()) result.nsp_logits = cls->seq_relationship->forward(output.pooler_output);
  return result;
}

PretrainingLoss pretraining_loss(const PretrainingOutput& output, const PackedBatch& batch, int64_t vocab_size) {
  const torch::Tensor masked = counted(batch, 0);
  if (!batch.masked_sources.defined()) {
    return add_sentence_pair_loss(ops::cross_entropy(output.mlm_logits, batch.masked_ids, vocab_size, masked), output,
                                  batch);
  }
  const auto mlm = ops::cross_entropy_of_rows(output.mlm_logits, batch.masked_ids, vocab_size, masked);
  PretrainingLoss loss = add_sentence_pair_loss(mlm.mean, output, batch);
  loss.mlm_of_tokens = mlm.rows;
  return loss;
}

PretrainingLoss add_sentence_pair_loss(const torch::Tensor& mlm, const PretrainingOutput& output,
                                       const PackedBatch& batch) {
  const bool pairs = output.nsp_logits.defined() && batch.next_sentence_labels.defined();
  const auto labels = [&] { return batch.next_sentence_labels.narrow(0, 0, output.nsp_logits.size(0)); };
  const torch::Tensor nsp =
      pairs ? ops::cross_entropy(output.nsp_logits, labels(), output.nsp_logits.size(1), counted(batch, 1))
            : at::zeros({}, mlm.options().requires_grad(false));
  return {.total = mlm + nsp, .mlm = mlm, .nsp = nsp, .mlm_of_tokens = {}};
}

BertForQuestionAnsweringImpl::BertForQuestionAnsweringImpl(const BertConfig& config)
    : bert(register_module("bert", BertModel(config, /*add_pooling_layer=*/false))),
      qa_outputs(register_module("qa_outputs", Linear(config, config.hidden_size, 2))) {}

QuestionAnsweringOutput BertForQuestionAnsweringImpl::forward(const PackedBatch& batch) {
  const torch::Tensor logits = qa_outputs->forward(bert->forward(batch, dropout_seed).last_hidden_state);
  return {.start_logits = logits.select(-1, 0), .end_logits = logits.select(-1, 1)};
}

QuestionAnsweringOutput BertForQuestionAnsweringImpl::forward(const torch::Tensor& input_ids,
                                                              const torch::Tensor& token_type_ids,
                                                              const torch::Tensor& attention_mask) {
  const PackedInput input = bert->pack(input_ids, token_type_ids, attention_mask);
  const QuestionAnsweringOutput output = forward(input.batch);
  return {.start_logits = input.unpack(output.start_logits), .end_logits = input.unpack(output.end_logits)};
}

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config, int64_t num_labels,
                                                                     WindowPooling pooling)
    : bert(register_module("bert", BertModel(config))),
      classifier(register_module("classifier", Linear(config, config.hidden_size, num_labels))),
      window_pooling(pooling) {
  if (pooling == WindowPooling::kAttention)
    window_attention = register_parameter(kWindowAttention, at::zeros({config.hidden_size}));
}

torch::Tensor BertForSequenceClassificationImpl::forward(const PackedBatch& batch) {
  const torch::Tensor pooled = bert->forward(batch, dropout_seed).pooler_output;
  const torch::Tensor logits = classifier->forward(
      head_dropout(pooled, batch, first_rows(batch), bert->config.hidden_dropout_prob, dropout_seed, is_training()));
  if (!batch.windows.defined()) return logits;
  return join_windows(window_pooling, logits, batch.windows,
                      window_attention.defined() ? window_scores(pooled, window_attention) : torch::Tensor());
}

torch::Tensor BertForSequenceClassificationImpl::forward(const torch::Tensor& input_ids,
                                                         const torch::Tensor& token_type_ids,
                                                         const torch::Tensor& attention_mask) {
  return forward(bert->pack(input_ids, token_type_ids, attention_mask).batch);
}

BertForTokenClassificationImpl::BertForTokenClassificationImpl(const BertConfig& config, int64_t num_labels)
    : bert(register_module("bert", BertModel(config, /*add_pooling_layer=*/false))),
      classifier(register_module("classifier", Linear(config, config.hidden_size, num_labels))) {}

torch::Tensor BertForTokenClassificationImpl::forward(const PackedBatch& batch) {
  const torch::Tensor hidden_states = bert->forward(batch, dropout_seed).last_hidden_state;
  return classifier->forward(
      head_dropout(hidden_states, batch, {}, bert->config.hidden_dropout_prob, dropout_seed, is_training()));
}

torch::Tensor BertForTokenClassificationImpl::forward(const torch::Tensor& input_ids,
                                                      const torch::Tensor& token_type_ids,
                                                      const torch::Tensor& attention_mask) {
  const PackedInput input = bert->pack(input_ids, token_type_ids, attention_mask);
  return input.unpack(forward(input.batch));
}

BertForMultipleChoiceImpl::BertForMultipleChoiceImpl(const BertConfig& config)
    : bert(register_module("bert", BertModel(config))),
      classifier(register_module("classifier", Linear(config, config.hidden_size, 1))) {}

torch::Tensor BertForMultipleChoiceImpl::forward(const PackedBatch& batch, int64_t num_choices) {
  TORCH_CHECK(num_choices > 0 && batch.num_sequences() % num_choices == 0,
              "BertForMultipleChoice: ", batch.num_sequences(), " sequences are not whole questions of ", num_choices,
              " choices.");
  const torch::Tensor pooled = bert->forward(batch, dropout_seed).pooler_output;
  return classifier
      ->forward(
          head_dropout(pooled, batch, first_rows(batch), bert->config.hidden_dropout_prob, dropout_seed, is_training()))
      .view({-1, num_choices});
}

torch::Tensor BertForMultipleChoiceImpl::forward(const torch::Tensor& input_ids, const torch::Tensor& token_type_ids,
                                                 const torch::Tensor& attention_mask) {
  TORCH_CHECK(input_ids.dim() == 3, "BertForMultipleChoice: input_ids must be [N, C, S], got ", input_ids.sizes(),
              ". For one question call unsqueeze(0).");
  const auto rows = [](const torch::Tensor& x) { return x.defined() ? x.flatten(0, 1) : x; };
  return forward(bert->pack(rows(input_ids), rows(token_type_ids), rows(attention_mask)).batch, input_ids.size(1));
}

}  // namespace bert
