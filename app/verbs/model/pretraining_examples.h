// Examples of pre-training in memory, for evaluations of models: rows of shards, and pieces of text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/config.h"
#include "data/examples/masking.h"
#include "data/formats/shard.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

struct EvaluatedExample {
  std::vector<int32_t> ids;   // [CLS] ... [SEP], without masks
  std::vector<int32_t> word;  // of each token: the number of its word; -1: a special token
  int64_t segment_b_start = 0;
  std::vector<int32_t> masked_ids;  // `ids` with the replaced tokens
  std::vector<MaskedToken> masked;  // ascending
  bool is_random_next = false;
  size_t source = 0;
  int64_t words = 0;  // that a perplexity of words counts
};

struct EvaluatedExamples {
  std::vector<EvaluatedExample> examples;
  std::optional<Objective> objective;   // of pairs of segments; empty: no pairs, or of several objectives
  std::vector<EvaluatedExample> pairs;  // of the same text as `examples`, without words, where these are no pairs
};

/// The files of `path`: itself, or those of a directory, sorted by name: its *.shard, else all below it. Throws
/// InputMissing.
std::vector<std::string> pretraining_files(const std::string& path);

/// Rows of `shards`, the first of each until there are `max_examples` (0: all). Words are tokens with their
/// continuations. Throws DataError for a damaged row.
EvaluatedExamples examples_of_shards(const PretrainingShards& shards, const Tokenizer& tokenizer, int64_t max_examples);

/// A piece of text that makes one example in every vocabulary.
struct TextPiece {
  std::string text;
  size_t source = 0;
  int64_t words = 0;  // of the first tokenizer
};

struct TextPieces {
  std::vector<TextPiece> pieces;
  int64_t words_left_out = 0;  // words of more tokens than an example has
};

/// Cuts the texts of `files` between words. A piece is as long as fits: every one of `tokenizers` makes at most
/// max_tokens - 2 tokens of it. It lies within one line of a file .jsonl, else within the file, whose paragraphs follow
/// each other. The first pieces of each file, until there are `max_pieces` (0: all). Throws InputMissing, IoError, and
/// DataError if there is no text.
TextPieces pieces_of_files(const std::vector<std::string>& files,
                           const std::vector<std::shared_ptr<const Tokenizer>>& tokenizers, int64_t max_tokens,
                           int64_t max_pieces);

/// [CLS] piece [SEP] of each.
EvaluatedExamples examples_of_pieces(std::span<const TextPiece> pieces, const Tokenizer& tokenizer, int64_t max_tokens);

struct PairOptions {
  Objective objective = Objective::kNsp;
  int64_t max_tokens = 0;
  uint64_t seed = 0;
  int64_t most = 0;  // pairs; 0: all
};

/// Pairs of segments of the texts of `files`: those that bert data create makes with --layout prose, --masking none,
/// --dupe-factor 1 and --short-seq-prob 0. The first of them, of so much text as pieces_of_files() takes, about. None if
/// there is no text for one: next sentences need two documents.
std::vector<EvaluatedExample> pairs_of_files(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                                             const PairOptions& options);

/// Draws the masks of all examples anew: 15 % of the tokens (Note [Masked tokens]). A pure function of the seed, the
/// place of an example and its ids.
void draw_masks(std::vector<EvaluatedExample>& examples, const Tokenizer& tokenizer, uint64_t seed);

}  // namespace bert
