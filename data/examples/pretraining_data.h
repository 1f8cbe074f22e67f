// Pre-training examples from text, as Google's create_pretraining_data.py makes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// [CLS] A [SEP] B [SEP], or with Objective::kMlm [CLS] A [SEP], with some tokens replaced.
struct PretrainingExample {
  std::vector<int32_t> input_ids;  // with the replaced tokens
  int32_t segment_b_start = 0;     // index of B's first token: token_type_ids are 1 from here on; length without B
  std::vector<int32_t> masked_positions;  // ascending; empty with StoredMasks::kNone
  std::vector<int32_t> masked_ids;        // the original ids at those positions
  bool is_random_next = false;            // kNsp: B does not follow A in the text; kSop: B stands before A; kMlm: false
  bool operator==(const PretrainingExample&) const = default;
};

/// Throws DataError if the parts of an example contradict each other or exceed these bounds.
void validate(const PretrainingExample& example, int64_t vocab_size, int64_t max_seq_length);

/// Settings of creation as names and values: the manifest of a shard stores them.
using Parameters = std::vector<std::pair<std::string, std::string>>;

/// The objective that examples with these parameters were made for; without the parameter it is kNsp. Throws DataError
/// for an unknown word.
Objective objective_of(const Parameters& parameters);

/// The ids of a document by sentence. No sentence is empty.
struct TokenizedDocument {
  std::vector<int32_t> ids;           // of all sentences, one after another
  std::vector<size_t> sentence_ends;  // into ids
  [[nodiscard]] size_t size() const { return sentence_ends.size(); }
  [[nodiscard]] std::span<const int32_t> sentence(size_t i) const {
    const size_t begin = i == 0 ? 0 : sentence_ends[i - 1];
    return std::span(ids).subspan(begin, sentence_ends[i] - begin);
  }
};

/// Counts of the text that was read.
struct CorpusStatistics {
  int64_t bytes = 0, documents = 0, sentences = 0, tokens = 0;
  int64_t unknown_tokens = 0;     // [UNK]
  int64_t invalid_sequences = 0;  // invalid UTF-8, dropped
};

struct Corpus {
  std::vector<TokenizedDocument> documents;  // none is empty
  CorpusStatistics statistics;
};

struct ReadOptions {
  bool split_sentences = false;  // plain prose: data/text/sentence_splitter.h; every file ends a document
  int64_t num_threads = 1;       // the result does not depend on it
  std::function<void(int64_t bytes, int64_t of_bytes)> progress;  // may be empty
};

/// Reads and tokenizes text with one sentence a line and empty lines between documents. As in Google's script, a
/// document continues into the next file if no empty line separates them. CRLF and a byte order mark are understood.
/// Throws InputMissing, IoError, and DataError if there is no text at all, or something other than text (text_input.h).
Corpus read_documents(const std::vector<std::string>& paths, const Tokenizer& tokenizer, const ReadOptions& options);

/// Moves whole documents out of `documents` for validation: those whose place in the corpus hashes, with `seed`, below
/// `share`. At least one document moves and at least one stays. Throws DataError if there is only one document,
/// std::invalid_argument for a share outside of (0, 1).
std::vector<TokenizedDocument> hold_out(std::vector<TokenizedDocument>& documents, double share, uint64_t seed);

/// Google's create_training_instances: the same examples in the same order for the same documents, vocabulary and
/// settings, except for Note [The next sentence of a lone document]. `progress` may be empty; it gets the finished
/// share, 0 to 1. Throws DataError if `documents` is empty.
std::vector<PretrainingExample> create_examples(const std::vector<TokenizedDocument>& documents,
                                                const Tokenizer& tokenizer, const PretrainingDataConfig& config,
                                                const std::function<void(double)>& progress = {});

}  // namespace bert
