#include "data/examples/masking.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "data/random/counter_random.h"
#include "data/random/py_random.h"

namespace bert {
namespace {

constexpr double kSpanEnds = 0.2;  // SpanBERT's parameter of the geometric distribution

}  // namespace

MaskingVocabulary::MaskingVocabulary(const Tokenizer& tokenizer)
    : cls_id(tokenizer.vocabulary().cls_id()),
      sep_id(tokenizer.vocabulary().sep_id()),
      mask_id(tokenizer.vocabulary().mask_id()) {
  // A token that occurs twice in the vocabulary counts once, at its first place and with its last id, like a key of a
  // Python dict.
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  std::unordered_set<int32_t> seen;
  for (const std::string& token : vocabulary.tokens()) {
    const int32_t id = vocabulary.find(token);
    if (seen.insert(id).second) random_ids.push_back(id);
  }
  for (int64_t id = 0; id < vocabulary.size(); ++id) continuations.push_back(tokenizer.is_continuation(id));
}

Masker::Masker(std::shared_ptr<const MaskingVocabulary> vocabulary, const MaskingConfig& config)
    : vocabulary_(std::move(vocabulary)), config_(config) {
  double share = 1, sum = 0;
  for (int64_t n = 1; n <= config.max_ngram; ++n, share *= 1 - kSpanEnds) ngram_limits_.push_back(sum += share);
  for (double& limit : ngram_limits_) limit /= sum;
}

template <class Random>
const std::vector<MaskedToken>& Masker::mask(std::span<int32_t> ids, Random& random) {
  find_candidates(ids);
  masked_.clear();
  // nearbyint rounds halves to even, as Python's round does.
  const double share = static_cast<double>(ids.size()) * config_.masked_lm_prob;
  const int64_t wanted =
      std::min(config_.max_predictions_per_seq, std::max<int64_t>(1, std::llrint(std::nearbyint(share))));
  const auto limit = static_cast<size_t>(wanted);
  config_.max_ngram == 1 ? mask_single(ids, limit, random) : mask_spans(ids, limit, random);
  std::ranges::sort(masked_, [](const MaskedToken& a, const MaskedToken& b) { return a.position < b.position; });
  return masked_;
}

void Masker::find_candidates(std::span<const int32_t> ids) {
  candidates_.clear();
  positions_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == vocabulary_->cls_id || ids[i] == vocabulary_->sep_id) continue;
    const bool continues = vocabulary_->continuations[static_cast<size_t>(ids[i])] != 0;
    if (config_.do_whole_word_mask && continues && !candidates_.empty()) {
      ++candidates_.back().count;
    } else {
      candidates_.push_back({positions_.size(), 1});
    }
    positions_.push_back(static_cast<int32_t>(i));
  }
}

/// Google's create_masked_lm_predictions.
template <class Random>
void Masker::mask_single(std::span<int32_t> ids, size_t limit, Random& random) {
  random.shuffle(candidates_);
  for (const Candidate& candidate : candidates_) {
    if (masked_.size() >= limit) break;
    if (masked_.size() + candidate.count > limit) continue;
    for (size_t i = 0; i < candidate.count; ++i) replace(ids, positions_[candidate.first + i], draw(random), random);
  }
}

template <class Random>
void Masker::mask_spans(std::span<int32_t> ids, size_t limit, Random& random) {
  order_.resize(candidates_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  random.shuffle(order_);
  taken_.assign(candidates_.size(), 0);
  for (const size_t start : order_) {
    if (masked_.size() >= limit) break;
    if (taken_[start] != 0) continue;
    const double drawn = random.random();
    size_t length = 1;
    while (length < ngram_limits_.size() && drawn >= ngram_limits_[length - 1]) ++length;
    const Replacement how = draw(random);
    int32_t next = -1;  // position at which the span may go on
    for (size_t i = start; i < candidates_.size() && i < start + length && taken_[i] == 0; ++i) {
      const Candidate& candidate = candidates_[i];
      const bool follows = next < 0 || positions_[candidate.first] == next;  // a [SEP] ends a span
      if (!follows || masked_.size() + candidate.count > limit) break;
      taken_[i] = 1;
      for (size_t token = candidate.first; token < candidate.first + candidate.count; ++token)
        replace(ids, positions_[token], how, random);
      next = positions_[candidate.first + candidate.count - 1] + 1;
    }
  }
}

template <class Random>
Masker::Replacement Masker::draw(Random& random) {
  if (random.random() < 0.8) return Replacement::kMask;
  return random.random() < 0.5 ? Replacement::kKeep : Replacement::kAny;
}

template <class Random>
void Masker::replace(std::span<int32_t> ids, int32_t position, Replacement how, Random& random) {
  int32_t& id = ids[static_cast<size_t>(position)];
  masked_.push_back({position, id});
  if (how == Replacement::kMask) id = vocabulary_->mask_id;
  if (how == Replacement::kAny) {
    const auto last = static_cast<int64_t>(vocabulary_->random_ids.size()) - 1;
    id = vocabulary_->random_ids[static_cast<size_t>(random.randint(0, last))];
  }
}

template const std::vector<MaskedToken>& Masker::mask(std::span<int32_t>, PyRandom&);
template const std::vector<MaskedToken>& Masker::mask(std::span<int32_t>, CounterRandom&);

}  // namespace bert
