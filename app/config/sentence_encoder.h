// What sentence-transformers puts behind an encoder: the vector of a text from the vectors of its tokens.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace bert {

/// The modes of sentence-transformers' Pooling, by their names there.
enum class SentencePooling : uint8_t { kCls, kMax, kMean, kMeanSqrtLen, kWeightedMean, kLastToken };
inline std::span<const char* const> names_of(SentencePooling /*type*/) {
  static constexpr std::array<const char*, 6> kNames = {"cls",          "max",      "mean", "mean_sqrt_len_tokens",
                                                        "weightedmean", "lasttoken"};
  return kNames;
}

/// The function that compares two vectors, by its name in config_sentence_transformers.json.
enum class Similarity : uint8_t { kCosine, kDot, kEuclidean, kManhattan };
inline std::span<const char* const> names_of(Similarity /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"cosine", "dot", "euclidean", "manhattan"};
  return kNames;
}

/// The activation of a dense layer, by its class in torch.nn.
enum class DenseActivation : uint8_t { kTanh, kIdentity, kGelu, kRelu, kSigmoid, kSilu };
inline std::span<const char* const> names_of(DenseActivation /*type*/) {
  static constexpr std::array<const char*, 6> kNames = {"Tanh", "Identity", "GELU", "ReLU", "Sigmoid", "SiLU"};
  return kNames;
}

/// The first part of the names of the tensors behind the encoder.
inline constexpr const char* kSentencePrefix = "sentence.";

/// The beginning of the names of the tensors of dense layer `index`.
inline std::string sentence_dense_prefix(size_t index) {
  return kSentencePrefix + ("dense." + std::to_string(index)) + ".";
}

/// A linear layer behind the pooling: weight [out_features, in_features], bias [out_features].
struct SentenceDense {
  int64_t in_features = 0, out_features = 0;
  bool bias = true;
  DenseActivation activation = DenseActivation::kTanh;
};

struct SentenceEncoder {
  std::vector<SentencePooling> pooling = {SentencePooling::kMean};  // their vectors stand side by side, in this order
  bool include_prompt = true;                                       // the pooling reads the tokens of the prompt
  std::vector<SentenceDense> dense = {};
  bool normalize = false;  // to length 1
  Similarity similarity = Similarity::kCosine;
  std::map<std::string, std::string> prompts = {};  // by name; a prompt is put before a text
  std::string default_prompt = {};                  // a name of `prompts`; "": none
};

/// The numbers of a text's vector.
inline int64_t vector_size(const SentenceEncoder& encoder, int64_t hidden_size) {
  return encoder.dense.empty() ? hidden_size * static_cast<int64_t>(encoder.pooling.size())
                               : encoder.dense.back().out_features;
}

}  // namespace bert
