#include "data/examples/pretraining_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "data/examples/masking.h"
#include "data/io/error.h"
#include "data/random/permutation.h"
#include "data/random/py_random.h"

namespace bert {
namespace {

// Note [The next sentence of a lone document]
// B of a "random next" example comes from another document. Google's script draws a document up to ten times and keeps
// the label "random" even if every draw was the example's own document, which always happens with a corpus of one
// document. Here such an example is labelled "not random", as in NVIDIA's copy of the script. The draws are the same,
// so everything else is equal.
constexpr int kDocumentDraws = 10;

constexpr int64_t kSpecialTokens = 3;  // [CLS] A [SEP] B [SEP]

class ExampleMaker {
 public:
  ExampleMaker(const std::vector<TokenizedDocument>& documents, const Tokenizer& tokenizer,
               const PretrainingDataConfig& config)
      : tokenizer_(tokenizer),
        config_(config),
        random_(static_cast<uint64_t>(config.random_seed)),
        masker_(std::make_shared<const MaskingVocabulary>(tokenizer), config.masks()) {
    for (const TokenizedDocument& document : documents) documents_.push_back(&document);
  }

  std::vector<PretrainingExample> make(const std::function<void(double)>& progress) {
    random_.shuffle(documents_);
    const int64_t rounds = config_.dupe_factor, count = static_cast<int64_t>(documents_.size());
    for (int64_t round = 0; round < rounds; ++round) {
      for (int64_t document = 0; document < count; ++document) {
        add_examples(document);
        if (progress) progress(static_cast<double>(round * count + document + 1) / static_cast<double>(rounds * count));
      }
    }
    random_.shuffle(examples_);
    return std::move(examples_);
  }

 private:
  /// create_instances_from_document: chunks of sentences of about the target length, each cut into A and B.
  void add_examples(int64_t document_index) {
    const TokenizedDocument& document = *documents_[static_cast<size_t>(document_index)];
    const int64_t max_tokens = config_.max_seq_length - kSpecialTokens;
    int64_t target_length = max_tokens;
    if (random_.random() < config_.short_seq_prob) target_length = random_.randint(2, max_tokens);
    size_t chunk_start = 0;
    int64_t chunk_length = 0;
    for (size_t i = 0; i < document.size(); ++i) {
      chunk_length += static_cast<int64_t>(document.sentence(i).size());
      if (i + 1 < document.size() && chunk_length < target_length) continue;
      const size_t used = add_example(document_index, chunk_start, i + 1, target_length);
      i = chunk_start + used - 1;  // sentences that B did not use are read again
      chunk_start = i + 1;
      chunk_length = 0;
    }
  }

  /// Makes one example from the sentences [begin, end). Returns the number of sentences used.
  size_t add_example(int64_t document_index, size_t begin, size_t end, int64_t target_length) {
    const TokenizedDocument& document = *documents_[static_cast<size_t>(document_index)];
    const size_t sentences = end - begin;
    const size_t a_sentences =
        sentences >= 2 ? static_cast<size_t>(random_.randint(1, static_cast<int64_t>(sentences) - 1)) : 1;
    a_.clear();
    b_.clear();
    for (size_t i = 0; i < a_sentences; ++i) append(a_, document.sentence(begin + i));
    const bool from_elsewhere = sentences == 1 || random_.random() < 0.5;
    bool is_random_next = false;
    if (from_elsewhere) {
      const int64_t target_b_length = target_length - static_cast<int64_t>(a_.size());
      int64_t other_index = document_index;
      for (int draw = 0; draw < kDocumentDraws && other_index == document_index; ++draw) {
        other_index = random_.randint(0, static_cast<int64_t>(documents_.size()) - 1);
      }
      is_random_next = other_index != document_index;
      const TokenizedDocument& other = *documents_[static_cast<size_t>(other_index)];
      const size_t start = static_cast<size_t>(random_.randint(0, static_cast<int64_t>(other.size()) - 1));
      for (size_t i = start; i < other.size(); ++i) {
        append(b_, other.sentence(i));
        if (static_cast<int64_t>(b_.size()) >= target_b_length) break;
      }
    } else {
      for (size_t i = begin + a_sentences; i < end; ++i) append(b_, document.sentence(i));
    }
    truncate_pair();

    PretrainingExample example;
    example.is_random_next = is_random_next;
    const Vocabulary& vocabulary = tokenizer_.vocabulary();
    std::vector<int32_t>& ids = example.input_ids;
    ids.reserve(a_.size() + b_.size() + kSpecialTokens);
    ids.push_back(vocabulary.cls_id());
    append(ids, a_);
    ids.push_back(vocabulary.sep_id());
    example.segment_b_start = static_cast<int32_t>(ids.size());
    append(ids, b_);
    ids.push_back(vocabulary.sep_id());
    if (config_.masking == StoredMasks::kStatic) {
      for (const auto& [position, id] : masker_.mask(ids, random_)) {
        example.masked_positions.push_back(position);
        example.masked_ids.push_back(id);
      }
    }
    examples_.push_back(std::move(example));
    return from_elsewhere ? a_sentences : sentences;
  }

  /// truncate_seq_pair: drops tokens of the longer segment (of B if equal), each from its front or its back.
  void truncate_pair() {
    size_t begin_a = 0, end_a = a_.size(), begin_b = 0, end_b = b_.size();
    const size_t max_tokens = static_cast<size_t>(config_.max_seq_length - kSpecialTokens);
    while (end_a - begin_a + end_b - begin_b > max_tokens) {
      const bool from_a = end_a - begin_a > end_b - begin_b;
      const bool from_front = random_.random() < 0.5;
      size_t& begin = from_a ? begin_a : begin_b;
      size_t& end = from_a ? end_a : end_b;
      from_front ? ++begin : --end;
    }
    const auto keep = [](std::vector<int32_t>& ids, size_t begin, size_t end) {
      ids.resize(end);
      ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(begin));
    };
    keep(a_, begin_a, end_a);
    keep(b_, begin_b, end_b);
  }

  static void append(std::vector<int32_t>& ids, std::span<const int32_t> more) {
    ids.insert(ids.end(), more.begin(), more.end());
  }

  const Tokenizer& tokenizer_;
  const PretrainingDataConfig& config_;
  PyRandom random_;
  std::vector<const TokenizedDocument*> documents_;
  Masker masker_;
  std::vector<PretrainingExample> examples_;
  // Members that keep their memory from example to example.
  std::vector<int32_t> a_, b_;
};

}  // namespace

void validate(const PretrainingExample& example, int64_t vocab_size, int64_t max_seq_length) {
  const int64_t length = static_cast<int64_t>(example.input_ids.size());
  if (length < 1 || length > max_seq_length) {
    throw DataError(fmt::format("an example has {} tokens, 1 to {} are allowed", length, max_seq_length));
  }
  if (example.segment_b_start < 0 || example.segment_b_start > length) {
    throw DataError(
        fmt::format("an example of {} tokens has its second segment at {}", length, example.segment_b_start));
  }
  for (const auto* ids : {&example.input_ids, &example.masked_ids}) {
    for (const int32_t id : *ids) {
      if (id < 0 || id >= vocab_size)
        throw DataError(fmt::format("an example has id {} in a vocabulary of {}", id, vocab_size));
    }
  }
  if (example.masked_positions.size() != example.masked_ids.size()) {
    throw DataError(fmt::format("an example has {} masked positions and {} masked ids", example.masked_positions.size(),
                                example.masked_ids.size()));
  }
  for (size_t i = 0; i < example.masked_positions.size(); ++i) {
    const int32_t position = example.masked_positions[i];
    if (position < 0 || position >= length || (i > 0 && position <= example.masked_positions[i - 1])) {
      throw DataError(
          fmt::format("an example of {} tokens has masked position {}, or positions out of order", length, position));
    }
  }
}

Objective objective_of(const Parameters& parameters) {
  for (const auto& [key, value] : parameters) {
    if (key != "objective") continue;
    if (const auto objective = value_named<Objective>(value)) return *objective;
    throw DataError(fmt::format("the examples were made with objective={}, which this program does not know", value));
  }
  return Objective::kNsp;
}

std::vector<TokenizedDocument> hold_out(std::vector<TokenizedDocument>& documents, double share, uint64_t seed) {
  if (!(share > 0 && share < 1))
    throw std::invalid_argument(fmt::format("hold_out: share must be between 0 and 1, got {}", share));
  if (documents.size() < 2) {
    throw DataError(fmt::format(
        "the input has {} document(s); holding one out for validation needs two. Separate documents by empty "
        "lines, or leave validation out.",
        documents.size()));
  }
  std::vector<uint64_t> hashes(documents.size());
  for (size_t i = 0; i < hashes.size(); ++i) hashes[i] = mix_bits(mix_bits(seed) ^ i);
  const auto [lowest, highest] = std::minmax_element(hashes.begin(), hashes.end());
  const uint64_t least = *lowest, most = *highest;
  const double threshold = std::ldexp(share, 64);
  std::vector<TokenizedDocument> held, kept;
  for (size_t i = 0; i < documents.size(); ++i) {
    const bool chosen = hashes[i] == least || (static_cast<double>(hashes[i]) < threshold && hashes[i] != most);
    (chosen ? held : kept).push_back(std::move(documents[i]));
  }
  documents = std::move(kept);
  return held;
}

std::vector<PretrainingExample> create_examples(const std::vector<TokenizedDocument>& documents,
                                                const Tokenizer& tokenizer, const PretrainingDataConfig& config,
                                                const std::function<void(double)>& progress) {
  if (documents.empty()) throw DataError("no documents to make examples of: the input has no text");
  return ExampleMaker(documents, tokenizer, config).make(progress);
}

}  // namespace bert
