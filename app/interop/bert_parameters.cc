#include "app/interop/bert_parameters.h"

#include <fmt/format.h>

#include <utility>

namespace bert {
namespace {

/// Collects parameters under a prefix.
class Collector {
 public:
  void add(std::string name, std::vector<int64_t> shape, bool has_vocabulary_rows = false) {
    const BertPart part = part_of(name);
    parameters.push_back({std::move(name), std::move(shape), part, has_vocabulary_rows});
  }
  void linear(const std::string& name, int64_t in_features, int64_t out_features) {
    add(name + ".weight", {out_features, in_features});
    add(name + ".bias", {out_features});
  }
  void layer_norm(const std::string& name, int64_t size) {
    add(name + ".weight", {size});
    add(name + ".bias", {size});
  }

  std::vector<BertParameter> parameters;
};

}  // namespace

BertPart part_of(std::string_view parameter) {
  if (parameter.starts_with("bert.pooler.")) return BertPart::kPooler;
  if (parameter.starts_with("cls.predictions.")) return BertPart::kMaskedTokenHead;
  if (parameter.starts_with("cls.seq_relationship.")) return BertPart::kSentencePairHead;
  return BertPart::kEncoder;
}

std::vector<BertParameter> bert_parameters(const BertConfig& config) {
  const int64_t hidden = config.hidden_size, tokens = config.vocab_size;
  Collector all;
  all.add(kWordEmbeddings, {tokens, hidden}, /*has_vocabulary_rows=*/true);
  all.add("bert.embeddings.position_embeddings.weight", {config.max_position_embeddings, hidden});
  all.add("bert.embeddings.token_type_embeddings.weight", {config.type_vocab_size, hidden});
  all.layer_norm("bert.embeddings.LayerNorm", hidden);
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string layer = fmt::format("bert.encoder.layer.{}.", i);
    for (const char* projection : {"query", "key", "value"})
      all.linear(layer + "attention.self." + projection, hidden, hidden);
    all.linear(layer + "attention.output.dense", hidden, hidden);
    all.layer_norm(layer + "attention.output.LayerNorm", hidden);
    all.linear(layer + "intermediate.dense", hidden, config.intermediate_size);
    all.linear(layer + "output.dense", config.intermediate_size, hidden);
    all.layer_norm(layer + "output.LayerNorm", hidden);
  }
  all.linear("bert.pooler.dense", hidden, hidden);
  all.add(kPredictionBias, {tokens}, /*has_vocabulary_rows=*/true);
  all.linear("cls.predictions.transform.dense", hidden, hidden);
  all.layer_norm("cls.predictions.transform.LayerNorm", hidden);
  all.linear("cls.seq_relationship", hidden, 2);
  return std::move(all.parameters);
}

}  // namespace bert
