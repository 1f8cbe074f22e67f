// Learns a WordPiece vocabulary from text.
//
// Note [BPE, not unigram]
// The pieces are those of sentencepiece's BPE trainer. On nine tenths of the Jargon File, 4096 tokens, the last tenth
// took 1.256 tokens per word with BPE and 1.387 with unigram (8000 tokens: 1.149 and 1.324): WordPiece takes the
// longest piece, not the most likely ones. BPE also gives the same pieces with any number of threads; unigram does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/config.h"

namespace bert {

/// What decides which vocabulary comes out.
struct WordPieceTrainerConfig {
  int64_t vocab_size = 30522;
  TokenizerConfig tokenizer = {};       // the one that will read the vocabulary
  double character_coverage = 0.9999;   // share of the text whose characters are in the vocabulary
  bool allow_fewer = false;             // a text that cannot give vocab_size tokens gives what it has
  bool allow_fewer_characters = false;  // where vocab_size has no room for those characters, the rarest stay out
};

inline constexpr double kLeastCharacterCoverage = 0.5;

/// Which characters of the text are in the vocabulary.
struct CharacterStatistics {
  int64_t in_text = 0;        // different ones
  int64_t in_vocabulary = 0;  // of those, the most frequent
  double coverage = 1;        // share of the text that they are
};

/// Counts words and learns pieces of them. The same words and options give the same vocabulary.
class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(const WordPieceTrainerConfig& config);

  /// Counts the words of `text`; a word does not continue in the next call's text. Returns the number of invalid UTF-8
  /// sequences.
  int64_t add(std::string_view text);

  /// How many different words were counted.
  [[nodiscard]] size_t words() const { return words_.size(); }

  /// How many words were left out because the tokenizer makes [UNK] of words so long.
  [[nodiscard]] int64_t overlong_words() const { return overlong_words_; }

  /// Of the vocabulary that train() gives.
  [[nodiscard]] CharacterStatistics characters() const { return choose_characters(config_).statistics; }

  /// Exactly vocab_size tokens (at most, with allow_fewer): [PAD] [UNK] [CLS] [SEP] [MASK], the characters by
  /// frequency, each also as ##continuation where it can be one, then pieces of words in the order in which they were
  /// learnt. Throws DataError when the text cannot give that many, when it has no words, or when the characters alone
  /// are more (without allow_fewer_characters).
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
