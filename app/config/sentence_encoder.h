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
enum class SentencePooling : uint8_t { kCls, kMean, kMax, kMeanSqrtLen, kWeightedMean, kLastToken };
inline std::span<const char* const> names_of(SentencePooling /*type*/) {
  static constexpr std::array<const char*, 6> kNames = {"cls",           "mean",         "max",
                                                        "mean_sqrt_len", "weightedmean", "lasttoken"};
  return kNames;
}

/// The function that compares two vectors, by its name in config_sentence_transformers.json.
enum class Similarity : uint8_t { kCosine, kDot, kEuclidean, kManhattan };
inline std::span<const char* const> names_of(Similarity /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"cosine", "dot", "euclidean", "manhattan"};
  return kNames;
}

/// A linear layer behind the pooling. Its weights are the tensors "sentence.dense.I.weight" and "sentence.dense.I.bias"
/// of the model.
struct SentenceDense {
  int64_t in_features = 0, out_features = 0;
  bool bias = true;
  bool tanh = false;  // the activation; else none
};

/// A model without a description of this kind gives the mean of its tokens, as sentence-transformers does.
struct SentenceEncoder {
  std::vector<SentencePooling> pooling = {SentencePooling::kMean};  // vectors side by side, in this order
  std::vector<SentenceDense> dense = {};
  bool normalize = false;  // to length 1
  Similarity similarity = Similarity::kCosine;
  std::map<std::string, std::string> prompts = {};  // by name; a prompt is put before a text
  std::string default_prompt = {};                  // a name of `prompts`; "": none
  bool include_prompt = true;                       // the pooling reads the tokens of the prompt
};

}  // namespace bert
