// The configuration of a model. Keys and meaning as in Hugging Face's config.json.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cuda_ext/names.h"

namespace bert {

/// The form of GELU: of tanh, as Google's, under two names, or of erf.
enum class Activation : uint8_t { kGeluNew, kGeluPytorchTanh, kGelu };
inline std::span<const char* const> names_of(Activation /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"gelu_new", "gelu_pytorch_tanh", "gelu"};
  return kNames;
}

/// The initial weights: a truncated normal, as Google's, or NVIDIA's variant.
enum class Initialization : uint8_t { kBert, kNvidia };
inline std::span<const char* const> names_of(Initialization /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"bert", "nvidia"};
  return kNames;
}

struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::kGeluNew;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
  Initialization init = Initialization::kBert;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("vocab_size", self.vocab_size, "entries of the vocabulary, without padding", 6, 1 << 24);
    visit("hidden_size", self.hidden_size, "width H of the hidden states", 1, 1 << 16);
    visit("num_hidden_layers", self.num_hidden_layers, "encoder layers L", 1, 1000);
    visit("num_attention_heads", self.num_attention_heads, "heads A; divides hidden_size", 1, 1000);
    visit("intermediate_size", self.intermediate_size, "width of the feed-forward layer", 1, 1 << 18);
    visit("hidden_act", self.hidden_act, "gelu_new or gelu_pytorch_tanh (tanh form, as Google's), or gelu (erf form)");
    visit("hidden_dropout_prob", self.hidden_dropout_prob, "dropout on hidden states", 0.0, 0.99);
    visit("attention_probs_dropout_prob", self.attention_probs_dropout_prob, "dropout on attention probabilities", 0.0,
          0.99);
    visit("max_position_embeddings", self.max_position_embeddings, "longest sequence", 1, 65536);
    visit("type_vocab_size", self.type_vocab_size, "segments", 1, 1024);
    visit("initializer_range", self.initializer_range, "standard deviation of the initial weights", 0.0, 1.0);
    visit("layer_norm_eps", self.layer_norm_eps, "added to the variance", 1e-15, 1e-2);
    visit("init", self.init, "bert (truncated normal, Google's) or nvidia (the reference's variant)");
  }

  /// Calls report(field, value, wanted, other field, other value) for each pair of fields that contradict each other.
  template <class Report>
  static void check_relations(const BertConfig& self, Report&& report) {
    if (self.num_attention_heads > 0 && self.hidden_size % self.num_attention_heads != 0)
      report("num_attention_heads", self.num_attention_heads, "a divisor of", "hidden_size", self.hidden_size);
  }
};

}  // namespace bert
