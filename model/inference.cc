#include "model/inference.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <bit>

#include "model/batch_checks.h"

namespace bert {

namespace {

torch::Tensor copy_of(const torch::Tensor& parameter) { return parameter.detach().clone(); }

/// The rows of a product for so many tokens: one of at most 16 numbers between two powers of 2, less than 64 too many.
/// oneDNN makes code for each new number of rows, which took a fifth of the time of short texts.
int64_t rounded_rows(int64_t tokens) {
  const int64_t step =
      std::clamp<int64_t>(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(tokens))) / 16, 1, 64);
  return (tokens + step - 1) / step * step;
}

/// The batch with a sequence of zeros at its end, which makes up the rows. Its labels and masks stay behind.
PackedBatch filled_up(const PackedBatch& batch, int64_t rows) {
  const int64_t missing = rows - batch.num_tokens();
  const auto with_zeros = [&](const torch::Tensor& x) { return at::constant_pad_nd(x, {0, missing}); };
  PackedBatch filled;
  filled.input_ids = with_zeros(batch.input_ids);
  filled.token_type_ids = with_zeros(batch.token_type_ids);
  filled.position_ids = with_zeros(batch.position_ids);
  filled.cu_seqlens = at::constant_pad_nd(batch.cu_seqlens, {0, 1}, rows);
  filled.max_seqlen = std::max(batch.max_seqlen, missing);
  return filled;
}

}  // namespace

BertInference::Layer BertInference::layer_of(const BertLayerImpl& layer, ops::Products products,
                                             torch::Tensor& scratch) {
  const BertSelfAttentionImpl& self = *layer.attention->self;
  const auto norm_of = [](const BertOutputImpl& output) {
    return Norm{.bias = copy_of(output.dense->bias),
                .gamma = copy_of(output.LayerNorm->weight),
                .beta = copy_of(output.LayerNorm->bias)};
  };
  const auto product_of = [&](const Linear& linear) {
    return ops::PreparedLinear(linear->weight.detach(), {}, products);
  };
  at::cat_out(scratch, {self.query->weight.detach(), self.key->weight.detach(), self.value->weight.detach()});
  return {.qkv = ops::PreparedLinear(scratch, at::cat({self.query->bias, self.key->bias, self.value->bias}).detach(),
                                     products),
          .attention_output = product_of(layer.attention->output->dense),
          .intermediate = product_of(layer.intermediate->dense),
          .output = product_of(layer.output->dense),
          .intermediate_bias = copy_of(layer.intermediate->dense->bias),
          .attention_norm = norm_of(*layer.attention->output),
          .output_norm = norm_of(*layer.output)};
}

BertInference::BertInference(const BertModelImpl& model, ops::Products products)
    : config_(model.config),
      gelu_(gelu_form(model.config)),
      tables_{.word = copy_of(model.embeddings->word_embeddings->weight),
              .position = copy_of(model.embeddings->position_embeddings->weight),
              .type = copy_of(model.embeddings->token_type_embeddings->weight)},
      embedding_norm_{.bias = {},
                      .gamma = copy_of(model.embeddings->LayerNorm->weight),
                      .beta = copy_of(model.embeddings->LayerNorm->bias)} {
  torch::Tensor scratch = at::empty({0}, tables_.word.options());  // one for all layers leaves no holes in the heap
  for (const auto& module : *model.encoder->layer) {
    layers_.push_back(layer_of(*module->as<BertLayerImpl>(), products, scratch));
  }
  if (!model.pooler.is_empty()) {
    const Linear& dense = model.pooler->dense;
    pooler_.emplace_back(dense->weight.detach(), dense->bias.detach(), products);
  }
}

torch::Tensor BertInference::normalised(const torch::Tensor& x, const torch::Tensor& residual, const Norm& norm) const {
  return ops::bias_dropout_residual_layer_norm(x, norm.bias, residual, norm.gamma, norm.beta, config_.layer_norm_eps,
                                               {});
}

torch::Tensor BertInference::forward(const Layer& layer, const torch::Tensor& hidden_states,
                                     const PackedBatch& batch) const {
  const torch::Tensor context =
      ops::attention(layer.qkv(hidden_states), batch.cu_seqlens, batch.max_seqlen, config_.num_attention_heads, {});
  const torch::Tensor attended = normalised(layer.attention_output(context), hidden_states, layer.attention_norm);
  const torch::Tensor widened = ops::bias_gelu(layer.intermediate(attended), layer.intermediate_bias, gelu_);
  return normalised(layer.output(widened), attended, layer.output_norm);
}

BertModelOutput BertInference::forward(const PackedBatch& given, std::vector<torch::Tensor>* hidden_states) const {
  check_batch(config_, given);
  const c10::InferenceMode inference;
  const int64_t tokens = given.num_tokens(), rows = given.input_ids.is_cpu() ? rounded_rows(tokens) : tokens;
  const PackedBatch batch = rows == tokens ? given : filled_up(given, rows);
  torch::Tensor x =
      ops::embedding_layer_norm_dropout(batch.input_ids, batch.position_ids, batch.token_type_ids, tables_,
                                        embedding_norm_.gamma, embedding_norm_.beta, config_.layer_norm_eps, {});
  if (hidden_states != nullptr) hidden_states->assign({x.narrow(0, 0, tokens)});
  for (const Layer& layer : layers_) {
    x = forward(layer, x, batch);
    if (hidden_states != nullptr) hidden_states->push_back(x.narrow(0, 0, tokens));
  }
  x = x.narrow(0, 0, tokens);
  BertModelOutput output{.last_hidden_state = x, .pooler_output = {}};
  if (!pooler_.empty()) {
    const torch::Tensor first = x.index_select(0, given.cu_seqlens.narrow(0, 0, given.num_sequences()));
    output.pooler_output = at::tanh(pooler_.front()(first));
  }
  return output;
}

}  // namespace bert
