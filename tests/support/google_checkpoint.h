// A checkpoint of small_bert() as Google's BERT saves it.
#pragma once

#include <map>
#include <string>

#include "tests/support/foreign_testing.h"
#include "tests/support/hex.h"
#include "tests/support/tensor_bundle.h"
#include "tests/support/text_file.h"
#include "tests/testing.h"

namespace bert::testing {

// Names of transformers and of Google's modeling.py; kernels are transposed. In a layer, after the layer's prefix.
inline const std::map<std::string, std::string> kGoogleNames = {
    {"bert.embeddings.word_embeddings.weight", "bert/embeddings/word_embeddings"},
    {"bert.embeddings.position_embeddings.weight", "bert/embeddings/position_embeddings"},
    {"bert.embeddings.token_type_embeddings.weight", "bert/embeddings/token_type_embeddings"},
    {"bert.embeddings.LayerNorm.weight", "bert/embeddings/LayerNorm/gamma"},
    {"bert.embeddings.LayerNorm.bias", "bert/embeddings/LayerNorm/beta"},
    {"bert.pooler.dense.weight", "bert/pooler/dense/kernel"},
    {"bert.pooler.dense.bias", "bert/pooler/dense/bias"},
    {"cls.predictions.bias", "cls/predictions/output_bias"},
    {"cls.predictions.transform.dense.weight", "cls/predictions/transform/dense/kernel"},
    {"cls.predictions.transform.dense.bias", "cls/predictions/transform/dense/bias"},
    {"cls.predictions.transform.LayerNorm.weight", "cls/predictions/transform/LayerNorm/gamma"},
    {"cls.predictions.transform.LayerNorm.bias", "cls/predictions/transform/LayerNorm/beta"},
    {"cls.seq_relationship.weight", "cls/seq_relationship/output_weights"},
    {"cls.seq_relationship.bias", "cls/seq_relationship/output_bias"},
    {"attention.self.query.weight", "attention/self/query/kernel"},
    {"attention.self.query.bias", "attention/self/query/bias"},
    {"attention.self.key.weight", "attention/self/key/kernel"},
    {"attention.self.key.bias", "attention/self/key/bias"},
    {"attention.self.value.weight", "attention/self/value/kernel"},
    {"attention.self.value.bias", "attention/self/value/bias"},
    {"attention.output.dense.weight", "attention/output/dense/kernel"},
    {"attention.output.dense.bias", "attention/output/dense/bias"},
    {"attention.output.LayerNorm.weight", "attention/output/LayerNorm/gamma"},
    {"attention.output.LayerNorm.bias", "attention/output/LayerNorm/beta"},
    {"intermediate.dense.weight", "intermediate/dense/kernel"},
    {"intermediate.dense.bias", "intermediate/dense/bias"},
    {"output.dense.weight", "output/dense/kernel"},
    {"output.dense.bias", "output/dense/bias"},
    {"output.LayerNorm.weight", "output/LayerNorm/gamma"},
    {"output.LayerNorm.bias", "output/LayerNorm/beta"}};

inline std::string google_name(const std::string& name) {
  const std::string layer = "bert.encoder.layer.";
  if (!name.starts_with(layer)) return kGoogleNames.at(name);
  return "bert/encoder/layer_" + name.substr(layer.size(), 1) + "/" + kGoogleNames.at(name.substr(layer.size() + 2));
}

/// The variables of small_bert(): the n-th parameter counts from n along its rows, kernels along their columns.
inline std::map<std::string, BundleSource> google_variables() {
  std::map<std::string, BundleSource> all;
  for (const TensorSource& tensor : small_bert_tensors()) {
    const std::string name = google_name(tensor.name);
    BundleSource source{tensor.shape, std::string(tensor.bytes())};
    if (name.ends_with("kernel")) {
      const int64_t rows = tensor.shape[0], columns = tensor.shape[1];
      source.shape = {columns, rows};
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < columns; ++c)
          tensor.bytes().copy(source.bytes.data() + 4 * (c * rows + r), 4, static_cast<size_t>(4 * (r * columns + c)));
      }
    }
    all[name + "/adam_m"] = all[name + "/adam_v"] = source;
    all[name] = std::move(source);
  }
  all["global_step"] = {{}, std::string("\x14\0\0\0", 4)};
  return all;
}

inline constexpr const char* kSmallBertConfig =
    R"({"vocab_size": 10, "hidden_size": 4, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "hidden_act": "gelu", "max_position_embeddings": 6, "type_vocab_size": 2,
    "pooler_type": "first_token_transform"})";
inline constexpr const char* kSmallVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\nsat\n##s\n.\n";

/// Writes a checkpoint with its files.
inline void write_google(const TemporaryDirectory& directory, const std::map<std::string, BundleSource>& tensors,
                         const std::string& vocabulary = kSmallVocabulary) {
  const BundleFiles bundle = tensor_bundle(tensors);
  write_text(directory.path("bert_model.ckpt.index"), bundle.index);
  write_text(directory.path("bert_model.ckpt.data-00000-of-00001"), bundle.data);
  write_text(directory.path("bert_config.json"), kSmallBertConfig);
  write_text(directory.path("vocab.txt"), vocabulary);
}

}  // namespace bert::testing
