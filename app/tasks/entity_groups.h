// Labels of tokens to entities, as transformers' pipeline token-classification makes them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bert {

/// The way from the labels of tokens to entities. kNone: each token has its own label. kSimple: neighbours with one label
/// are an entity. The others give each word one label first: that of its first token, that of the highest mean over its
/// tokens, or that of its most certain token.
enum class Aggregation : uint8_t { kNone, kSimple, kFirst, kAverage, kMax };
inline std::span<const char* const> names_of(Aggregation /*type*/) {
  static constexpr std::array<const char*, 5> kNames = {"none", "simple", "first", "average", "max"};
  return kNames;
}

/// A token of a text with the probabilities of its labels.
struct TaggedToken {
  int64_t index = 0;           // in its sequence, where [CLS] is 0
  std::string piece;           // as the vocabulary has it; of [UNK] the text
  std::string text;            // without the mark of a piece
  bool begins_word = true;     // false: the token continues the word of the token before it
  int64_t begin = 0, end = 0;  // characters of the text: the token is [begin, end)
  std::vector<double> scores;  // for each label
};

/// Tokens with one meaning. `label` is without the letter of its scheme, such as B- and I-, but with kNone.
struct Entity {
  std::string label;
  double score = 0;  // of kSimple and the strategies of words the mean over the parts
  std::string word;  // the parts, joined by spaces
  int64_t begin = 0, end = 0;
  int64_t index = 0;  // of kNone: TaggedToken::index
};

/// The entities of one text, without those of `ignored` labels. Source: transformers' token_classification.py
/// (TokenClassificationPipeline.aggregate, postprocess), which knows B- and I- alone. If all labels but O have the letters
/// of IOBES or BILOU, E- and L- end an entity, S- and U- are one.
std::vector<Entity> group_entities(std::span<const TaggedToken> tokens, const std::vector<std::string>& labels,
                                   Aggregation aggregation, const std::vector<std::string>& ignored);

/// The number of the largest score.
size_t best_of(const std::vector<double>& scores);

}  // namespace bert
