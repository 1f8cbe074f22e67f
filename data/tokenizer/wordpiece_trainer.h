// Learns a WordPiece vocabulary from text.
//
// Note [BPE, not unigram]
// The pieces come from the BPE trainer of sentencepiece. A vocabulary of 4096 tokens learned on nine tenths of the
// Jargon File gave 1.256 tokens a word on the last tenth with BPE, 1.387 with unigram (8000 tokens: 1.149 and 1.324).
// The reason: WordPiece takes the longest piece, not the most likely ones. BPE also gives the same pieces with any
// number of threads; unigram does not.
//
// Note [Bounded vocabulary training]
// A large text has no end of different words: names, numbers, words of other languages, slips. Two limits bound the
// memory:
// - Counting. Where the words take more than `most_words`, those with the smallest counts are forgotten, until half of
//   the room is free. A forgotten word that comes again starts from 0, with the largest count that a forgotten word had
//   as its possible error; the sum of both decides what is forgotten next. This is lossy counting (Manku and Motwani
//   2002) with a limit of memory in place of one of error. Characters are counted before a word is forgotten, so their
//   counts are exact.
// - Learning. sentencepiece's BPE keeps every place of every pair of characters, some 60 bytes a character. So only the
//   most frequent words are given to it, as many as fit into `most_learnt_words`.
// A text below both limits gives the same vocabulary as without limits. left_out() says what was forgotten or not
// given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  // Limits of memory: Note [Bounded vocabulary training]. A word of 32 bytes or more counts as several in the first, a
  // word of 16 characters or more in the second.
  int64_t most_words = 4'000'000;
  int64_t most_learnt_words = 2'000'000;
};

inline constexpr double kLeastCharacterCoverage = 0.5;

/// The characters of the text that are in the vocabulary.
struct CharacterStatistics {
  int64_t in_text = 0;        // distinct characters
  int64_t in_vocabulary = 0;  // the most frequent ones
  double coverage = 1;        // share of the text that these make up
};

/// Words that a limit of memory left out.
struct WordsLeftOut {
  int64_t words = 0;  // a word that was forgotten several times counts several times
  double share = 0;   // of all words of the text, repetitions included
};

/// Counts words and learns their pieces. The same text in the same calls of add() and the same options give the same
/// vocabulary.
class WordPieceTrainer {
 public:
  explicit WordPieceTrainer(const WordPieceTrainerConfig& config);

  /// Counts the words of `text`. A word does not continue into the text of the next call. Returns the number of invalid
  /// UTF-8 sequences.
  int64_t add(std::string_view text);

  /// Number of different words that are counted now. 0 after train().
  [[nodiscard]] size_t words() const { return words_.size(); }

  /// Number of words that are left out because the tokenizer makes [UNK] of words of this length.
  [[nodiscard]] int64_t overlong_words() const { return overlong_words_; }

  /// Statistics of the vocabulary that train() returned.
  [[nodiscard]] CharacterStatistics characters() const { return characters_; }

  /// Words of the text that add() forgot, and after train(), with those that were not given to sentencepiece for want
  /// of memory.
  [[nodiscard]] WordsLeftOut left_out() const;

  /// The counted words, most frequent first, then by bytes.
  [[nodiscard]] std::vector<std::pair<std::string, int64_t>> counts() const;

  /// Returns exactly vocab_size tokens (at most, with allow_fewer): [PAD] [UNK] [CLS] [SEP] [MASK], then the characters
  /// by frequency, each also as ##continuation if it can be one, then pieces of words in the order of learning. Throws
  /// DataError if the text gives fewer tokens, if it has no words, or if the characters alone are more than vocab_size
  /// (without allow_fewer_characters). Frees the words: it may be called once.
  [[nodiscard]] std::vector<std::string> train();

 private:
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  template <class Value>
  using ByText = std::unordered_map<std::string, Value, Hash, std::equal_to<>>;

  struct Counted {
    int64_t count = 0;
    int64_t error = 0;  // at most so many more were forgotten
  };
  struct ChosenCharacters {
    std::vector<std::string> characters;  // most frequent first
    CharacterStatistics statistics;
  };
  using Count = std::pair<std::string, int64_t>;

  void count(std::string_view word);
  void forget_rare_words();
  [[nodiscard]] ChosenCharacters choose_characters(const WordPieceTrainerConfig& config) const;
  [[nodiscard]] std::vector<Count> take_words(const std::vector<std::string>& characters);
  [[nodiscard]] std::vector<std::string> learn_pieces(const std::vector<std::string>& characters);

  WordPieceTrainerConfig config_;
  ByText<Counted> words_;
  ByText<int64_t> forgotten_characters_;
  CharacterStatistics characters_;
  int64_t room_ = 0;       // that words_ takes of most_words
  int64_t forgotten_ = 0;  // the largest count, with its error, of a forgotten word
  int64_t all_words_ = 0, overlong_words_ = 0, left_out_words_ = 0, left_out_count_ = 0;
};

}  // namespace bert
