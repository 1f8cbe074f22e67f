// Learns a WordPiece vocabulary from text.
//
// Note [BPE, not unigram]
// The pieces come from the BPE trainer of sentencepiece. A vocabulary of 4096 tokens learned on nine tenths of the
// Jargon File gave 1.256 tokens a word on the last tenth with BPE, 1.387 with unigram (8000 tokens: 1.149 and 1.324).
// The reason: WordPiece takes the longest piece, not the most likely ones. BPE also gives the same pieces with any
// number of threads; unigram does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/config.h"

namespace bert {

/// Options that decide the resulting vocabulary.
struct WordPieceTrainerConfig {
  int64_t vocab_size = 30522;
  TokenizerConfig tokenizer = {};       // the one that will read the vocabulary
  double character_coverage = 0.9999;   // share of the text whose characters are in the vocabulary
  bool allow_fewer = false;             // a text that cannot give vocab_size tokens gives fewer
  bool allow_fewer_characters = false;  // the rarest characters are left out where vocab_size has no room for them
};

inline constexpr double kLeastCharacterCoverage = 0.5;

/// The characters of the text that are in the vocabulary.
struct CharacterStatistics {
  int64_t in_text = 0;        // distinct characters
  int64_t in_vocabulary = 0;  // the most frequent ones
  double coverage = 1;        // share of the text that these make up
};

/// Counts words and learns their pieces. The same words and options give the same vocabulary.
class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(const WordPieceTrainerConfig& config);

  /// Counts the words of `text`. A word does not continue into the text of the next call. Returns the number of invalid
  /// UTF-8 sequences.
  int64_t add(std::string_view text);

  /// Number of different words.
  [[nodiscard]] size_t words() const { return words_.size(); }

  /// Number of words that are left out because the tokenizer makes [UNK] of words of this length.
  [[nodiscard]] int64_t overlong_words() const { return overlong_words_; }

  /// Statistics of the vocabulary that train() returns.
  [[nodiscard]] CharacterStatistics characters() const { return choose_characters(config_).statistics; }

  /// Returns exactly vocab_size tokens (at most, with allow_fewer): [PAD] [UNK] [CLS] [SEP] [MASK], then the characters
  /// by frequency, each also as ##continuation if it can be one, then pieces of words in the order of learning. Throws
  /// DataError if the text gives fewer tokens, if it has no words, or if the characters alone are more than vocab_size
  /// (without allow_fewer_characters).
  [[nodiscard]] std::vector<std::string> train() const;

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };

  struct ChosenCharacters {
    std::vector<std::string> characters;  // most frequent first
    CharacterStatistics statistics;
  };
  [[nodiscard]] ChosenCharacters choose_characters(const WordPieceTrainerConfig& config) const;
  [[nodiscard]] std::vector<std::string> learn_pieces(const std::vector<std::string>& characters) const;

  WordPieceTrainerConfig config_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> words_;
  int64_t overlong_words_ = 0;
};

}  // namespace bert
