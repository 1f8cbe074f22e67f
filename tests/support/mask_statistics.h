// Statistics of the masks of pre-training examples. A count of independent draws may differ from its mean by three standard
// deviations.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "data/config.h"
#include "data/examples/pretraining_data.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/testing.h"

namespace bert::testing {

inline bool is_within_three_sigma(double count, double mean, double variance) {
  CAPTURE(count, mean, std::sqrt(variance));
  return std::abs(count - mean) <= 3 * std::sqrt(variance);
}

inline bool is_binomial(int64_t count, int64_t draws, double probability) {
  const auto n = static_cast<double>(draws);
  return is_within_three_sigma(static_cast<double>(count), n * probability, n * probability * (1 - probability));
}

/// Python's round: halves go to the even neighbour. Google's script computes the number of predictions with it.
inline int64_t python_round(double value) {
  const double below = std::floor(value), fraction = value - below;
  const bool up = fraction > 0.5 || (fraction == 0.5 && std::fmod(below, 2) != 0);
  return static_cast<int64_t>(below) + (up ? 1 : 0);
}

/// The example's tokens before masking: the labels put back.
inline std::vector<int32_t> restored(const PretrainingExample& example) {
  std::vector<int32_t> ids = example.input_ids;
  for (size_t i = 0; i < example.masked_ids.size(); ++i)
    ids[static_cast<size_t>(example.masked_positions[i])] = example.masked_ids[i];
  return ids;
}

/// The parts of a set of examples that are drawn at random, counted.
struct MaskCounts {
  int64_t predictions = 0, masked = 0, kept = 0, replaced = 0;
  int64_t low_replacements = 0;  // by an id in the lower half of the vocabulary
  int64_t first_half = 0;        // predictions in the first half of their example
};

/// Checks what holds for every example of pairs, and counts the rest.
inline MaskCounts count(const std::vector<PretrainingExample>& examples, const Tokenizer& tokenizer,
                        const PretrainingDataConfig& config) {
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const int32_t cls = vocabulary.cls_id(), sep = vocabulary.sep_id();
  MaskCounts counts;
  for (const PretrainingExample& example : examples) {
    const auto length = static_cast<int64_t>(example.input_ids.size());
    const std::vector<int32_t> ids = restored(example);
    // [CLS] A [SEP] B [SEP], with nothing of it masked.
    const auto b = static_cast<size_t>(example.segment_b_start);
    REQUIRE(length <= config.max_seq_length);
    REQUIRE((b > 2 && b < ids.size() - 1));
    REQUIRE((example.input_ids.front() == cls && example.input_ids.back() == sep && example.input_ids[b - 1] == sep));
    REQUIRE(std::ranges::count(ids, sep) == 2);
    REQUIRE(std::ranges::count(ids, cls) == 1);
    // The number of predictions. Source: create_masked_lm_predictions in Google's create_pretraining_data.py.
    const int64_t wanted = std::max<int64_t>(1, python_round(static_cast<double>(length) * config.masked_lm_prob));
    REQUIRE(static_cast<int64_t>(example.masked_ids.size()) ==
            std::min({config.max_predictions_per_seq, wanted, length - 3}));
    std::set<int32_t> positions;
    for (size_t i = 0; i < example.masked_ids.size(); ++i) {
      const int32_t position = example.masked_positions[i], original = example.masked_ids[i];
      const int32_t now = example.input_ids[static_cast<size_t>(position)];
      REQUIRE((original != cls && original != sep));
      REQUIRE(positions.insert(position).second);
      ++counts.predictions;
      counts.masked += now == vocabulary.mask_id();
      counts.kept += now == original;
      const bool is_replaced = now != vocabulary.mask_id() && now != original;
      counts.replaced += is_replaced;
      counts.low_replacements += is_replaced && now < vocabulary.size() / 2;
      counts.first_half += 2 * position < length;
    }
  }
  return counts;
}

inline void check_masks(const MaskCounts& counts, int64_t vocab_size) {
  const double any = 0.1 / static_cast<double>(vocab_size);  // a replacement that is [MASK], or the token itself
  CHECK(is_binomial(counts.masked, counts.predictions, 0.8 + any));
  CHECK_FALSE(is_binomial(counts.masked, counts.predictions, 0.82));  // the twin
  CHECK(is_binomial(counts.kept, counts.predictions, 0.1 + any));
  CHECK(is_binomial(counts.replaced, counts.predictions, 0.1 - 2 * any));
  CHECK(is_binomial(counts.low_replacements, counts.replaced, 0.5));
  // Masks without replacement vary less than independent ones. [CLS] takes a place in the first half, and [SEP] one in the
  // second and one in either.
  CHECK(is_within_three_sigma(
      static_cast<double>(counts.first_half), 0.5 * static_cast<double>(counts.predictions),
      0.25 * static_cast<double>(counts.predictions) + std::pow(0.01 * static_cast<double>(counts.predictions), 2)));
}

}  // namespace bert::testing
