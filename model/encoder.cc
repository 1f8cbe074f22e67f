// Embeddings, encoder and pooler on packed tokens.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>

#include <vector>

#include "cuda_ext/beside_residual.h"
#include "cuda_ext/scalar/philox.h"
#include "model/bert.h"
#include "model/initialization.h"
#include "model/recompute.h"

namespace bert {
namespace {

/// Moves `parameters`, which have equal shapes, to consecutive parts of one new storage. Their values stay.
void make_consecutive(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  const std::vector<torch::Tensor> parts = at::cat(parameters).chunk(static_cast<int64_t>(parameters.size()));
  for (size_t i = 0; i < parameters.size(); ++i) parameters[i].set_data(parts[i]);
}

/// Self-attention, and its input for the residual.
ops::BesideResidual attend(BertSelfAttentionImpl& self, const torch::Tensor& hidden_states,
                           const PackedContext& context) {
  const auto [qkv, residual] = ops::qkv_linear_beside_residual(hidden_states, {.query_weight = self.query->weight,
                                                                               .key_weight = self.key->weight,
                                                                               .value_weight = self.value->weight,
                                                                               .query_bias = self.query->bias,
                                                                               .key_bias = self.key->bias,
                                                                               .value_bias = self.value->bias});
  return {self.attend(qkv, context), residual};
}

}  // namespace

ops::Gelu gelu_form(const BertConfig& config) {
  return config.hidden_act == Activation::kGelu ? ops::Gelu::kErf : ops::Gelu::kTanh;
}

ops::Dropout PackedContext::dropout(double p, uint32_t site) const {
  if (!training || p == 0.0) return {};
  return {.p = p, .seed = dropout_seed, .site = site, .keys = dropout_keys};
}

LinearImpl::LinearImpl(const BertConfig& config, int64_t in_features, int64_t out_features, bool has_fused_activation)
    : weight(register_parameter("weight", at::empty({out_features, in_features}))),
      bias(register_parameter("bias", at::zeros({out_features}))),
      fused_activation(has_fused_activation) {
  fill_new(*this, config);
}

torch::Tensor LinearImpl::forward(const torch::Tensor& x) { return ops::linear(x, weight, bias); }

EmbeddingImpl::EmbeddingImpl(const BertConfig& config, int64_t num_embeddings)
    : weight(register_parameter("weight", at::empty({num_embeddings, config.hidden_size}))) {
  fill_new(*this, config);
}

LayerNormImpl::LayerNormImpl(int64_t hidden_size, double epsilon)
    : eps(epsilon),
      weight(register_parameter("weight", at::ones({hidden_size}))),
      bias(register_parameter("bias", at::zeros({hidden_size}))) {}

torch::Tensor LayerNormImpl::forward(const torch::Tensor& x) { return ops::layer_norm(x, weight, bias, eps); }

BertEmbeddingsImpl::BertEmbeddingsImpl(const BertConfig& config)
    : hidden_dropout_prob(config.hidden_dropout_prob),
      word_embeddings(register_module("word_embeddings", Embedding(config, config.vocab_size))),
      position_embeddings(register_module("position_embeddings", Embedding(config, config.max_position_embeddings))),
      token_type_embeddings(register_module("token_type_embeddings", Embedding(config, config.type_vocab_size))),
      LayerNorm(register_module("LayerNorm", bert::LayerNorm(config.hidden_size, config.layer_norm_eps))) {}

torch::Tensor BertEmbeddingsImpl::forward(const PackedBatch& batch, const PackedContext& context) {
  return ops::embedding_layer_norm_dropout(
      batch.input_ids, batch.position_ids, batch.token_type_ids,
      {.word = word_embeddings->weight, .position = position_embeddings->weight, .type = token_type_embeddings->weight},
      LayerNorm->weight, LayerNorm->bias, LayerNorm->eps, context.dropout(hidden_dropout_prob, kEmbeddingSite));
}

BertSelfAttentionImpl::BertSelfAttentionImpl(const BertConfig& config, uint32_t layer)
    : num_attention_heads(config.num_attention_heads),
      attention_probs_dropout_prob(config.attention_probs_dropout_prob),
      layer_index(layer),
      query(register_module("query", Linear(config, config.hidden_size, config.hidden_size))),
      key(register_module("key", Linear(config, config.hidden_size, config.hidden_size))),
      value(register_module("value", Linear(config, config.hidden_size, config.hidden_size))) {
  share_storage();
}

void BertSelfAttentionImpl::share_storage() {
  make_consecutive({query->weight, key->weight, value->weight});
  make_consecutive({query->bias, key->bias, value->bias});
}

void BertSelfAttentionImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  Module::to(device, dtype, non_blocking);
  share_storage();
}

void BertSelfAttentionImpl::to(torch::Dtype dtype, bool non_blocking) {
  Module::to(dtype, non_blocking);
  share_storage();
}

void BertSelfAttentionImpl::to(torch::Device device, bool non_blocking) {
  Module::to(device, non_blocking);
  share_storage();
}

torch::Tensor BertSelfAttentionImpl::forward(const torch::Tensor& hidden_states, const PackedContext& context) {
  return bert::attend(*this, hidden_states, context).result;
}

torch::Tensor BertSelfAttentionImpl::attend(const torch::Tensor& qkv, const PackedContext& context) {
  if (context.qkv != nullptr) *context.qkv = qkv;
  return ops::attention(qkv, context.cu_seqlens, context.max_seqlen, num_attention_heads,
                        context.dropout(attention_probs_dropout_prob, dropout_site(layer_index, kAttentionSite)));
}

BertOutputImpl::BertOutputImpl(const BertConfig& config, int64_t in_features, uint32_t dropout_site)
    : hidden_dropout_prob(config.hidden_dropout_prob),
      site(dropout_site),
      dense(register_module("dense", Linear(config, in_features, config.hidden_size))),
      LayerNorm(register_module("LayerNorm", bert::LayerNorm(config.hidden_size, config.layer_norm_eps))) {}

torch::Tensor BertOutputImpl::forward(const torch::Tensor& hidden_states, const torch::Tensor& input,
                                      const PackedContext& context) {
  return normalize(ops::linear(hidden_states, dense->weight, {}), input, context);
}

torch::Tensor BertOutputImpl::normalize(const torch::Tensor& product, const torch::Tensor& input,
                                        const PackedContext& context) {
  return ops::bias_dropout_residual_layer_norm(product, dense->bias, input, LayerNorm->weight, LayerNorm->bias,
                                               LayerNorm->eps, context.dropout(hidden_dropout_prob, site));
}

BertAttentionImpl::BertAttentionImpl(const BertConfig& config, uint32_t layer_index)
    : self(register_module("self", BertSelfAttention(config, layer_index))),
      output(register_module(
          "output", BertOutput(config, config.hidden_size, dropout_site(layer_index, kAttentionOutputSite)))) {}

torch::Tensor BertAttentionImpl::forward(const torch::Tensor& hidden_states, const PackedContext& context) {
  const auto [attended, residual] = attend(*self, hidden_states, context);
  return output->forward(attended, residual, context);
}

BertIntermediateImpl::BertIntermediateImpl(const BertConfig& config)
    : hidden_act(gelu_form(config)),
      dense(register_module(
          "dense", Linear(config, config.hidden_size, config.intermediate_size, /*has_fused_activation=*/true))) {}

torch::Tensor BertIntermediateImpl::forward(const torch::Tensor& hidden_states) {
  return ops::bias_gelu(ops::linear(hidden_states, dense->weight, {}), dense->bias, hidden_act);
}

BertLayerImpl::BertLayerImpl(const BertConfig& config, uint32_t layer_index)
    : attention(register_module("attention", BertAttention(config, layer_index))),
      intermediate(register_module("intermediate", BertIntermediate(config))),
      output(register_module("output",
                             BertOutput(config, config.intermediate_size, dropout_site(layer_index, kOutputSite)))) {}

torch::Tensor BertLayerImpl::forward_in_fp8(const torch::Tensor& hidden_states, const PackedContext& context) {
  const Fp8Layer& scaling = *context.fp8;
  BertSelfAttentionImpl& self = *attention->self;
  const torch::Tensor heads =
      self.attend(ops::fp8_linear(hidden_states, {self.query->weight, self.key->weight, self.value->weight},
                                  {self.query->bias, self.key->bias, self.value->bias}, scaling.qkv),
                  context);
  const torch::Tensor attended = attention->output->normalize(
      ops::fp8_linear(heads, attention->output->dense->weight, {}, scaling.attention_output), hidden_states, context);
  const torch::Tensor widened =
      ops::bias_gelu(ops::fp8_linear(attended, intermediate->dense->weight, {}, scaling.intermediate),
                     intermediate->dense->bias, intermediate->hidden_act);
  return output->normalize(ops::fp8_linear(widened, output->dense->weight, {}, scaling.output), attended, context);
}

torch::Tensor BertLayerImpl::forward(const torch::Tensor& hidden_states, const PackedContext& context) {
  if (context.fp8 != nullptr) return forward_in_fp8(hidden_states, context);
  const torch::Tensor attended = attention->forward(hidden_states, context);
  const auto [product, residual] = ops::feed_forward_beside_residual(
      attended,
      {.wide = intermediate->dense->weight, .bias = intermediate->dense->bias, .narrow = output->dense->weight},
      intermediate->hidden_act);
  return output->normalize(product, residual, context);
}

BertEncoderImpl::BertEncoderImpl(const BertConfig& config) : layer(register_module("layer", torch::nn::ModuleList())) {
  for (int64_t index = 0; index < config.num_hidden_layers; ++index) {
    layer->push_back(BertLayer(config, static_cast<uint32_t>(index)));
  }
}

// Note [Order of gradients at taps]
// A hidden state of the taps has gradients from its losses and from two places of the next layer. The view collects the
// latter, so that they are added first, as in a layer that runs again. So the sums have the same bits in both cases.
torch::Tensor BertEncoderImpl::forward(torch::Tensor hidden_states, const PackedContext& context) {
  if (taps != nullptr) *taps = {};
  size_t index = 0;
  for (const auto& module : *layer) {
    const auto current = std::dynamic_pointer_cast<BertLayerImpl>(module);
    const bool tapped = taps != nullptr && module == *(layer->end() - 1);
    PackedContext of_layer = context;
    if (context.training && !fp8.empty() && fp8[index].qkv.scales.defined()) of_layer.fp8 = &fp8[index];
    ++index;
    if (tapped) of_layer.qkv = &taps->qkv;
    const auto forward = [current, of_layer](const torch::Tensor& x) { return current->forward(x, of_layer); };
    hidden_states = gradient_checkpointing && context.training && !tapped
                        ? recompute_in_backward(hidden_states, current->parameters(), forward)
                        : forward(hidden_states);
    if (taps == nullptr) continue;
    taps->hidden_states.push_back(hidden_states);
    hidden_states = hidden_states.view_as(hidden_states);  // Note [Order of gradients at taps]
  }
  return hidden_states;
}

BertPoolerImpl::BertPoolerImpl(const BertConfig& config)
    : dense(register_module("dense",
                            Linear(config, config.hidden_size, config.hidden_size, /*has_fused_activation=*/true))) {}

torch::Tensor BertPoolerImpl::forward(const torch::Tensor& hidden_states, const PackedContext& context) {
  const int64_t batch_size = context.cu_seqlens.numel() - 1;
  return at::tanh(dense->forward(hidden_states.index_select(0, context.cu_seqlens.narrow(0, 0, batch_size))));
}

}  // namespace bert
