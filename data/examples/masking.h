// The choice of masked tokens, for examples that store their masks and for masks that the loader draws.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The facts about a vocabulary that masking needs.
struct MaskingVocabulary {
  explicit MaskingVocabulary(const Tokenizer& tokenizer);

  int32_t cls_id, sep_id, mask_id;
  std::vector<int32_t> random_ids;     // a replacement by "any token" is one of these, each with the same probability
  std::vector<uint8_t> continuations;  // by id: 1 if the token continues the word before it
};

/// A token whose id the model predicts.
struct MaskedToken {
  int32_t position;
  int32_t id;  // before the replacement
  bool operator==(const MaskedToken&) const = default;
};

// Note [Masked tokens]
// A candidate is a token other than [CLS] and [SEP]; with do_whole_word_mask it is a word, a token with its
// continuations. Candidates are taken in random order until round(length * masked_lm_prob) tokens are masked, at least 1
// and at most max_predictions_per_seq. A candidate that has more tokens than are left is passed over.
// With max_ngram = 1 each token becomes [MASK] with probability 0.8, stays with 0.1, and becomes any token of the
// vocabulary with 0.1. Source: BERT, section 3.1; the draws are those of Google's create_masked_lm_predictions.
// With max_ngram > 1 each candidate begins a span of n candidates that follow each other in a segment; n is
// geometric with p = 0.2, restricted to at most max_ngram (mean 3.8 for 10). The choice of 0.8, 0.1 and 0.1 is one for
// all tokens of a span. Source: SpanBERT (Joshi et al., 2020), section 3.1, which masks words.

/// Masks sequences one after another. Each thread needs its own object.
class Masker {
 public:
  Masker(std::shared_ptr<const MaskingVocabulary> vocabulary, const MaskingConfig& config);

  /// Replaces tokens of `ids`, a sequence with [CLS] and [SEP] but without padding. The result depends on `ids`, the
  /// configuration and the state of `random` alone. Returns the masked tokens by ascending position, valid until the
  /// next call; none if there is no candidate that fits.
  /// Random is PyRandom or CounterRandom.
  template <class Random>
  const std::vector<MaskedToken>& mask(std::span<int32_t> ids, Random& random);

 private:
  struct Candidate {
    size_t first, count;  // in positions_
  };
  enum class Replacement : uint8_t { kMask, kKeep, kAny };

  void find_candidates(std::span<const int32_t> ids);
  template <class Random>
  void mask_single(std::span<int32_t> ids, size_t limit, Random& random);
  template <class Random>
  void mask_spans(std::span<int32_t> ids, size_t limit, Random& random);
  template <class Random>
  void replace(std::span<int32_t> ids, int32_t position, Replacement how, Random& random);
  template <class Random>
  [[nodiscard]] static Replacement draw(Random& random);

  std::shared_ptr<const MaskingVocabulary> vocabulary_;
  MaskingConfig config_;
  std::vector<double> ngram_limits_;  // cumulative probability of 1, 2, ... candidates
  // Members that keep their memory from call to call.
  std::vector<int32_t> positions_;
  std::vector<Candidate> candidates_;
  std::vector<size_t> order_;
  std::vector<uint8_t> taken_;
  std::vector<MaskedToken> masked_;
};

}  // namespace bert
