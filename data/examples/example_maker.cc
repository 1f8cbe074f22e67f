#include "data/examples/example_maker.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "data/io/error.h"
#include "data/random/permutation.h"

namespace bert {
namespace {

// Note [The next sentence of a lone document]
// B of a "random next" example comes from another document. Google's script draws a document up to ten times and keeps
// the label "random" even if every draw was the example's own document, which always happens with a corpus of one
// document. Here such an example is labelled "not random", as in NVIDIA's copy of the script. The draws are the same,
// so everything else is equal.
constexpr int kDocumentDraws = 10;

constexpr int64_t kSpecialTokensOfPair = 3, kSpecialTokensOfOne = 2;  // [CLS] A [SEP] B [SEP], [CLS] A [SEP]

}  // namespace

ExampleMaker::ExampleMaker(const TokenizedDocuments& documents, std::vector<uint32_t> which,
                           std::shared_ptr<const MaskingVocabulary> vocabulary, const PretrainingDataConfig& config,
                           uint64_t seed, const std::string& scratch_directory)
    : documents_(documents),
      which_(std::move(which)),
      vocabulary_(std::move(vocabulary)),
      config_(config),
      random_(seed),
      masker_(vocabulary_, config.masks()),
      examples_(scratch_directory) {
  if (which_.empty()) throw DataError("no documents to make examples of: the input has no text");
}

void ExampleMaker::make(const std::function<void(double)>& progress) {
  random_.shuffle(which_);
  const int64_t rounds = config_.dupe_factor, count = static_cast<int64_t>(which_.size());
  for (int64_t round = 0; round < rounds; ++round) {
    for (int64_t place = 0; place < count; ++place) {
      config_.objective == Objective::kMlm ? add_full_sequences(which_[static_cast<size_t>(place)])
                                           : add_pairs(static_cast<size_t>(place));
      if (progress) progress(static_cast<double>(round * count + place + 1) / static_cast<double>(rounds * count));
    }
  }
  examples_.shuffle(random_);
}

/// create_instances_from_document: chunks of sentences of about the target length, each cut into A and B.
void ExampleMaker::add_pairs(size_t place) {
  const size_t document = which_[place];
  const size_t first = documents_.first_sentence(document), last = documents_.first_sentence(document + 1);
  const int64_t max_tokens = config_.max_seq_length - kSpecialTokensOfPair;
  int64_t target_length = max_tokens;
  if (random_.random() < config_.short_seq_prob) target_length = random_.randint(2, max_tokens);
  size_t chunk = first;
  for (size_t i = first; i < last; ++i) {
    const auto length = static_cast<int64_t>(documents_.first_token(i + 1) - documents_.first_token(chunk));
    if (i + 1 < last && length < target_length) continue;
    chunk += add_pair(place, chunk, i + 1, target_length);
    i = chunk - 1;  // sentences that B did not use are read again
  }
}

/// Makes one example from the sentences [begin, end). Returns the number of sentences used.
size_t ExampleMaker::add_pair(size_t place, size_t begin, size_t end, int64_t target_length) {
  const size_t sentences = end - begin;
  const bool sentence_order = config_.objective == Objective::kSop;
  const size_t a_sentences =
      sentences >= 2 ? static_cast<size_t>(random_.randint(1, static_cast<int64_t>(sentences) - 1)) : 1;
  SegmentPair pair{.a_begin = documents_.first_token(begin),
                   .a_end = documents_.first_token(begin + a_sentences),
                   .b_begin = documents_.first_token(begin + a_sentences),
                   .b_end = documents_.first_token(end),
                   .has_b = true};
  size_t used = sentences;
  if (sentence_order) {
    if (sentences == 1) {
      const auto length = static_cast<int64_t>(pair.a_end - pair.a_begin);
      if (length < 2) {
        ++lone_tokens_;
        return used;
      }
      pair.b_begin = pair.a_end = pair.a_begin + static_cast<size_t>(random_.randint(1, length - 1));
    }
    pair.label = random_.random() < 0.5;
    if (pair.label) {
      std::swap(pair.a_begin, pair.b_begin);
      std::swap(pair.a_end, pair.b_end);
    }
  } else if (sentences == 1 || random_.random() < 0.5) {
    choose_next(place, target_length, pair);
    used = a_sentences;
  }
  truncate(pair);
  add(pair);
  return used;
}

/// B of another document, from a random sentence on.
void ExampleMaker::choose_next(size_t place, int64_t target_length, SegmentPair& pair) {
  const int64_t target_b_length = target_length - static_cast<int64_t>(pair.a_end - pair.a_begin);
  auto other = static_cast<int64_t>(place);
  for (int draw = 0; draw < kDocumentDraws && other == static_cast<int64_t>(place); ++draw) {
    other = random_.randint(0, static_cast<int64_t>(which_.size()) - 1);
  }
  pair.label = other != static_cast<int64_t>(place);
  const size_t document = which_[static_cast<size_t>(other)];
  const size_t first = documents_.first_sentence(document), last = documents_.first_sentence(document + 1);
  size_t sentence = first + static_cast<size_t>(random_.randint(0, static_cast<int64_t>(last - first) - 1));
  pair.b_begin = documents_.first_token(sentence);
  do {
    pair.b_end = documents_.first_token(++sentence);
  } while (sentence < last && static_cast<int64_t>(pair.b_end - pair.b_begin) < target_b_length);
}

/// truncate_seq_pair: drops tokens of the longer segment (of B if equal), each from its front or its back.
void ExampleMaker::truncate(SegmentPair& pair) {
  const auto max_tokens = static_cast<size_t>(config_.max_seq_length - kSpecialTokensOfPair);
  while (pair.a_end - pair.a_begin + pair.b_end - pair.b_begin > max_tokens) {
    const bool from_a = pair.a_end - pair.a_begin > pair.b_end - pair.b_begin;
    const bool from_front = random_.random() < 0.5;
    if (from_front) {
      ++(from_a ? pair.a_begin : pair.b_begin);
    } else {
      --(from_a ? pair.a_end : pair.b_end);
    }
  }
}

void ExampleMaker::add_full_sequences(size_t document) {
  const auto room = static_cast<size_t>(config_.max_seq_length - kSpecialTokensOfOne);
  const size_t first = documents_.first_sentence(document), last = documents_.first_sentence(document + 1);
  size_t begin = documents_.first_token(first), end = begin;
  for (size_t i = first; i < last; ++i) {
    const size_t sentence_end = documents_.first_token(i + 1);
    if (end > begin && sentence_end - begin > room) {
      add({.a_begin = begin, .a_end = end});
      begin = end;
    }
    for (; sentence_end - begin > room; begin += room) add({.a_begin = begin, .a_end = begin + room});
    end = sentence_end;
  }
  add({.a_begin = begin, .a_end = end});
}

void ExampleMaker::add(const SegmentPair& pair) {
  if (config_.masking == StoredMasks::kNone) {
    examples_.add(pair, {}, {}, vocabulary_->mask_id);
    return;
  }
  ids_.assign(1, vocabulary_->cls_id);
  documents_.append(pair.a_begin, pair.a_end, ids_);
  ids_.push_back(vocabulary_->sep_id);
  if (pair.has_b) {
    documents_.append(pair.b_begin, pair.b_end, ids_);
    ids_.push_back(vocabulary_->sep_id);
  }
  const auto& masked = masker_.mask(ids_, random_);
  examples_.add(pair, masked, ids_, vocabulary_->mask_id);
}

void ExampleMaker::get(size_t i, PretrainingExample& example) const {
  PackedExamples::Reader reader(examples_, i);
  const SegmentPair& pair = reader.pair();
  std::vector<int32_t>& ids = example.input_ids;
  ids.assign(1, vocabulary_->cls_id);
  documents_.append(pair.a_begin, pair.a_end, ids);
  ids.push_back(vocabulary_->sep_id);
  example.segment_b_start = static_cast<int32_t>(ids.size());
  if (pair.has_b) {
    documents_.append(pair.b_begin, pair.b_end, ids);
    ids.push_back(vocabulary_->sep_id);
  }
  example.is_random_next = pair.label;
  example.masked_positions.clear();
  example.masked_ids.clear();
  while (reader.masked_left() > 0) {
    const auto [position, id] = reader.next_masked(ids, vocabulary_->mask_id);
    int32_t& token = ids[static_cast<size_t>(position)];
    example.masked_positions.push_back(position);
    example.masked_ids.push_back(std::exchange(token, id));
  }
}

std::vector<uint8_t> held_out(uint64_t first, size_t count, double share, uint64_t seed, bool at_least_one) {
  if (!(share > 0 && share < 1))
    throw std::invalid_argument(fmt::format("held_out: share must be between 0 and 1, got {}", share));
  std::vector<uint64_t> hashes(count);
  for (size_t i = 0; i < count; ++i) hashes[i] = mix_bits(mix_bits(seed) ^ (first + i));
  const double threshold = std::ldexp(share, 64);
  std::vector<uint8_t> held(count);
  std::ranges::transform(hashes, held.begin(),
                         [&](uint64_t hash) { return static_cast<uint8_t>(static_cast<double>(hash) < threshold); });
  if (at_least_one && count >= 2) {
    const auto [lowest, highest] = std::minmax_element(hashes.begin(), hashes.end());
    held[static_cast<size_t>(lowest - hashes.begin())] = 1;
    held[static_cast<size_t>(highest - hashes.begin())] = 0;
  }
  return held;
}

}  // namespace bert
