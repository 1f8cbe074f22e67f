// The settings of a fine-tuning run of sentence embeddings: data sets, losses and the modules behind the encoder.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/config/fields.h"

namespace bert {

/// The losses of sentence-transformers, by the names of its classes.
enum class EmbeddingLoss : uint8_t {
  kMultipleNegativesRanking,
  kCoSent,
  kCosineSimilarity,
  kTriplet,
  kContrastive,
  kOnlineContrastive,
  kSoftmax,
  kMarginMse,
  kMse
};
inline std::span<const char* const> names_of(EmbeddingLoss /*type*/) {
  static constexpr std::array<const char*, 9> kNames = {
      "multiple_negatives_ranking", "cosent",  "cosine_similarity", "triplet", "contrastive",
      "online_contrastive",         "softmax", "margin_mse",        "mse"};
  return kNames;
}

/// The distance of two vectors in the losses that have one. kDefault: that of sentence-transformers for the loss.
enum class VectorDistance : uint8_t { kDefault, kCosine, kEuclidean, kManhattan };
inline std::span<const char* const> names_of(VectorDistance /*type*/) {
  static constexpr std::array<const char*, 4> kNames = {"default", "cosine", "euclidean", "manhattan"};
  return kNames;
}

/// A data set of pairs, triplets or longer rows, and its loss.
struct EmbeddingSetConfig {
  std::string file = {};
  std::vector<std::string> text_columns = {};
  std::string label_column = {};
  std::vector<std::string> prompts = {};
  EmbeddingLoss loss = EmbeddingLoss::kMultipleNegativesRanking;
  double scale = 20;
  double margin = 0;
  VectorDistance distance = VectorDistance::kDefault;
  bool symmetric = false;
  double false_negative_margin = 0;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("file", self.file, "a table, or SQuAD: questions and paragraphs; empty = the training file of data", kPath);
    visit(
        "text_columns", self.text_columns,
        "columns of the texts: anchor, positive, negatives; empty = all but the label's; one column: each text is its "
        "own positive, with other dropout (SimCSE)");
    visit("label_column", self.label_column,
          "column of the score or class; empty = score, scores, label or labels, if there is one");
    visit("prompts", self.prompts,
          "texts that are put before those of each column; one = before all. Those of the first set are the model's "
          "prompts query and document");
    visit("loss", self.loss, "the loss, as sentence-transformers defines it; mse: the vectors of distillation.teacher");
    visit("scale", self.scale, "factor of the similarities in multiple_negatives_ranking and cosent: 1 / temperature",
          1e-3, 1e4);
    visit("margin", self.margin,
          "margin of triplet, contrastive and online_contrastive; 0 = 5 for triplet, 0.5 for the others", 0.0, 1e4);
    visit("distance", self.distance,
          "distance in triplet (default: euclidean), contrastive and online_contrastive (default: cosine)");
    visit("symmetric", self.symmetric, "multiple_negatives_ranking: also from each positive to its anchor");
    visit("false_negative_margin", self.false_negative_margin,
          "multiple_negatives_ranking: a negative whose cosine exceeds the positive's by so much is left out; 0 = none",
          0.0, 2.0);
  }
};

/// The pooling of the model. kOfCheckpoint: that of the initial checkpoint, else the mean of the tokens.
enum class TrainedPooling : uint8_t { kOfCheckpoint, kCls, kMax, kMean, kMeanSqrtLen, kWeightedMean, kLastToken };
inline std::span<const char* const> names_of(TrainedPooling /*type*/) {
  static constexpr std::array<const char*, 7> kNames = {
      "auto", "cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"};
  return kNames;
}

/// The data set of the next step, if there are several.
enum class SetSampling : uint8_t { kProportional, kRoundRobin };
inline std::span<const char* const> names_of(SetSampling /*type*/) {
  static constexpr std::array<const char*, 2> kNames = {"proportional", "round_robin"};
  return kNames;
}

struct EmbeddingConfig {
  TrainedPooling pooling = TrainedPooling::kOfCheckpoint;
  bool normalize = false;
  std::vector<EmbeddingSetConfig> sets;
  SetSampling sampling = SetSampling::kProportional;
  bool no_duplicates = true;
  std::vector<std::string> matryoshka_dimensions;

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("pooling", self.pooling,
          "vector of a text from those of its tokens; auto = as initial_checkpoint, else mean");
    visit("normalize", self.normalize, "vectors of length 1, also where initial_checkpoint has others");
    visit("sets", self.sets,
          "data sets with their losses; a step takes its examples from one of them; empty = one of "
          "multiple_negatives_ranking");
    visit("sampling", self.sampling, "proportional: steps of a set by its number of rows; round_robin: in turn");
    visit("no_duplicates", self.no_duplicates, "no text stands twice in a step, where it would be a wrong negative");
    visit("matryoshka_dimensions", self.matryoshka_dimensions,
          "numbers of dimensions, as \"256\" or with a weight \"256:0.5\", on whose first dimensions the loss is added "
          "up; empty = on all");
  }
};

}  // namespace bert
