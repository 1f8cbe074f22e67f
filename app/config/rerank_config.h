// The settings of a fine-tuning run of rerankers.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "app/config/fields.h"

namespace bert {

/// The losses of sentence-transformers' CrossEncoder, by the names of its classes.
enum class RerankLoss : uint8_t { kBinaryCrossEntropy, kCrossEntropy, kMarginMse };
inline std::span<const char* const> names_of(RerankLoss /*type*/) {
  static constexpr std::array<const char*, 3> kNames = {"binary_cross_entropy", "cross_entropy", "margin_mse"};
  return kNames;
}

struct RerankConfig {
  RerankLoss loss = RerankLoss::kBinaryCrossEntropy;
  std::vector<std::string> text_columns = {};
  std::string label_column = {};

  /// True if a row of training is a query with several passages, else a pair with its label.
  [[nodiscard]] bool reads_passages() const { return loss != RerankLoss::kBinaryCrossEntropy; }

  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor&& visit) {
    visit("loss", self.loss,
          "binary_cross_entropy of pairs; cross_entropy: the positive among the passages of its row; margin_mse: the "
          "label is a teacher's score of the positive minus that of the negative. Development files have pairs");
    visit("text_columns", self.text_columns,
          "training columns of query, positive and negatives in cross_entropy and margin_mse; empty = all but the "
          "label's");
    visit("label_column", self.label_column,
          "column of the margins in margin_mse; empty = score, scores, label or labels");
  }
};

}  // namespace bert
