// Sentences with one masked word, which a run of pre-training answers at every evaluation.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/train/step/training_step.h"
#include "data/formats/shard.h"
#include "data/loader/collate.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The same sentences for a whole run: those of its first usable validation examples. A sentence is a stretch of at
/// most kMostTokens tokens around the example's first masked token that is a whole word; it lies within one segment,
/// the example's other masks are filled in, and its ends do not cut words. An example without such a token is not
/// usable.
class MaskedSentences {
 public:
  static constexpr int64_t kSentences = 20, kMostTokens = 40, kFillers = 5;

  /// Reads examples until kSentences are found, of the first `examples`, at most 1,000. `masking`: as in
  /// evaluate_pretraining(). Throws DataError.
  MaskedSentences(const std::shared_ptr<const PretrainingShards>& shards, const Tokenizer& tokenizer, int64_t examples,
                  std::optional<DynamicMasking> masking);

  /// The line of answers.jsonl of step `applied`: each text with [MASK], the expected token, and the kFillers most
  /// likely tokens with their probabilities. Evaluates without dropout, and changes nothing. null if there is no
  /// sentence.
  [[nodiscard]] nlohmann::ordered_json answers(TrainingStep& step, int64_t applied) const;

 private:
  struct Sentence {
    std::vector<int32_t> ids;  // with [CLS] and [SEP]
    size_t mask = 0;           // its place in ids
    int32_t expected = 0;
    std::string text;
  };
  void add_sentences(const PackedBatch& batch);
  [[nodiscard]] std::optional<Sentence> sentence_of(const std::vector<int32_t>& ids,
                                                    const std::vector<size_t>& masked) const;
  [[nodiscard]] PackedBatch batch() const;

  const Tokenizer& tokenizer_;
  std::vector<Sentence> sentences_;
};

}  // namespace bert
