// Entities of token classification, as seqeval and conlleval.pl count them.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "data/config.h"

namespace bert {

/// A run of words of one kind: words first to last.
struct EntitySpan {
  std::string type;
  int64_t first = 0, last = 0;
  auto order() const { return std::tie(type, first, last); }
  bool operator==(const EntitySpan& other) const { return order() == other.order(); }
  bool operator<(const EntitySpan& other) const { return order() < other.order(); }
};

/// The entities of one sentence. `tags` are O, or B-, I-, E- or S- and a type, in any of the schemes IOB1, IOB2, IOE and
/// IOBES. Source: seqeval.metrics.sequence_labeling.get_entities (not strict).
std::vector<EntitySpan> entities_of(const std::vector<std::string>& tags);

/// The entities of one sentence in a scheme, in order, without those that the scheme does not allow. Throws DataError for
/// a tag of another scheme. Source: seqeval.scheme.Entities, of its strict mode.
std::vector<EntitySpan> strict_entities_of(const std::vector<std::string>& tags, LabelScheme scheme);

/// Counts over sentences.
struct EntityScores {
  double precision = 0, recall = 0, f1 = 0;  // of entities, all types together
  double accuracy = 0;                       // of words
};

/// Compares the tags of sentences, by entities_of() for kAny, else by strict_entities_of(). Both lists have the same shape.
/// A ratio with denominator 0 is 0. Source: seqeval.metrics (precision_score, recall_score, f1_score with
/// average="micro", accuracy_score), and its mode "strict".
EntityScores entity_scores(const std::vector<std::vector<std::string>>& labels,
                           const std::vector<std::vector<std::string>>& predictions,
                           LabelScheme scheme = LabelScheme::kAny);

}  // namespace bert
