#include "app/inference/embedding_model.h"

#include <torch/types.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "app/inference/sentence_pooling.h"
#include "optim/amp.h"

namespace bert {
namespace {

/// [B, T], `of_token` [T] where the token is one of the sequence, else 0.
at::Tensor spread(const at::Tensor& sequences, const at::Tensor& of_token, int64_t count) {
  const at::Tensor rows = torch::arange(count, sequences.options()).unsqueeze(1);
  return torch::where(rows.eq(sequences), of_token, torch::zeros({1}, of_token.options()));
}

/// The number of tokens [B] that the pooling leaves out at the begin of each sequence.
at::Tensor skipped_tokens(const PackedBatch& batch, const at::Tensor& begins, const at::Tensor& lengths,
                          const std::vector<at::Tensor>& unread) {
  at::Tensor skipped = torch::zeros_like(lengths);
  for (const at::Tensor& ids : unread) {
    const at::Tensor places = begins.unsqueeze(1) + torch::arange(ids.numel(), ids.options());
    const at::Tensor found = batch.input_ids.take(places.clamp_max(batch.num_tokens() - 1)).eq(ids).all(1);
    skipped = torch::maximum(skipped, found * ids.numel());
  }
  return skipped.masked_fill(skipped.ge(lengths), 0);
}

}  // namespace

at::Tensor pool_sequences(const std::vector<SentencePooling>& pooling, const at::Tensor& states,
                          const PackedBatch& batch, const std::vector<at::Tensor>& unread) {
  const AutocastGuard no_autocast(states.device().type(), Precision::kFp32);
  const at::Tensor x = states.to(torch::kFloat);
  const int64_t count = batch.num_sequences(), tokens = batch.num_tokens();
  const at::Tensor lengths = batch.cu_seqlens.diff().to(torch::kLong);
  const at::Tensor sequences = torch::arange(count, lengths.options()).repeat_interleave(lengths, /*dim=*/0, tokens);
  at::Tensor begins = batch.cu_seqlens.narrow(0, 0, count).to(torch::kLong);
  const at::Tensor ends = begins + lengths;
  at::Tensor skipped, is_read;  // undefined: every token is read
  if (!unread.empty()) {
    skipped = skipped_tokens(batch, begins, lengths, unread);
    is_read = batch.position_ids.ge(skipped.index_select(0, sequences));
    begins = begins + skipped;
  }
  // A sum over a sequence's tokens is a product, which has one order of summation on every device.
  const auto weighted_sum = [&](const at::Tensor& weights) {
    return spread(sequences, is_read.defined() ? weights * is_read : weights, count).mm(x);
  };
  const auto sum = [&] { return weighted_sum(torch::ones({1}, x.options()).expand({tokens})); };
  const auto sum_of_places = [](const at::Tensor& last) { return last * (last + 1) / 2; };
  std::vector<at::Tensor> parts;
  for (const SentencePooling mode : pooling) {
    const at::Tensor sizes = (ends - begins).to(torch::kFloat).unsqueeze(1);
    switch (mode) {
      case SentencePooling::kCls:
        parts.push_back(x.index_select(0, begins));
        break;
      case SentencePooling::kLastToken:
        parts.push_back(x.index_select(0, ends - 1));
        break;
      case SentencePooling::kMax: {
        const at::Tensor read =
            is_read.defined() ? x.masked_fill(~is_read.unsqueeze(1), std::numeric_limits<float>::lowest()) : x;
        parts.push_back(at::segment_reduce(read, "max", lengths));
        break;
      }
      case SentencePooling::kMean:
        parts.push_back(sum() / sizes);
        break;
      case SentencePooling::kMeanSqrtLen:
        parts.push_back(sum() / sizes.sqrt());
        break;
      case SentencePooling::kWeightedMean: {
        // A token weighs as much as its place in the text, counted from 1.
        at::Tensor weights = sum_of_places(lengths.to(torch::kFloat).unsqueeze(1));
        if (skipped.defined()) weights = weights - sum_of_places(skipped.to(torch::kFloat).unsqueeze(1));
        parts.push_back(weighted_sum(batch.position_ids.to(torch::kFloat) + 1) / weights);
      }
    }
  }
  return parts.size() == 1 ? parts.front() : torch::cat(parts, 1);
}

BertForSentenceEmbeddingImpl::BertForSentenceEmbeddingImpl(const BertConfig& config, SentenceEncoder sentence_encoder,
                                                           int64_t classes)
    : encoder(std::move(sentence_encoder)),
      bert(register_module("bert", BertModel(config, /*add_pooling_layer=*/false))) {
  if (classes > 0) {
    constexpr int64_t kVectors = 3;  // both, and their difference
    const int64_t size = kVectors * vector_size(encoder, config.hidden_size);
    classifier = register_module("classifier", Linear(config, size, classes));
  }
  if (encoder.dense.empty()) return;
  const auto layers = std::make_shared<torch::nn::Module>("dense");
  register_module("sentence", std::make_shared<torch::nn::Module>("sentence"))->register_module("dense", layers);
  for (size_t i = 0; i < encoder.dense.size(); ++i) {
    const SentenceDense& dense = encoder.dense[i];
    const auto layer = layers->register_module(std::to_string(i), std::make_shared<torch::nn::Module>("linear"));
    const auto add = [&](const char* name, at::IntArrayRef sizes) {
      dense_.insert(sentence_dense_prefix(i) + name, layer->register_parameter(name, torch::zeros(sizes)));
    };
    add("weight", {dense.out_features, dense.in_features});
    if (dense.bias) add("bias", {dense.out_features});
  }
}

StateDict sentence_weights_of(const Pretrained& pretrained) {
  StateDict weights = pretrained.sentence_weights;
  for (const auto& item : pretrained.weights) {
    const bool of_encoder = item.key().starts_with(kEncoderPrefix) && !item.key().starts_with("bert.pooler.");
    if (of_encoder) weights.insert(item.key(), item.value());
  }
  return weights;
}

torch::Tensor BertForSentenceEmbeddingImpl::forward(const PackedBatch& batch) {
  const at::Tensor states = bert->forward(batch, dropout_seed).last_hidden_state;
  const at::Tensor pooled = pool_sequences(encoder.pooling, states, batch, unread_prompts);
  const AutocastGuard no_autocast(states.device().type(), Precision::kFp32);
  return SentenceHead(encoder, dense_, states.device()).finish(pooled);
}

}  // namespace bert
