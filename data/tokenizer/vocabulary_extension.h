// More WordPiece tokens for an old vocabulary: those with which a text has the fewest tokens.
//
// Note [Greedy extension]
// Each round takes the piece, a whole word or ##continuation, that saves most tokens on all words of the text, as
// WordPiece would really tokenize them: the longest piece first. The rounds go on with the words as they are then. Of
// equal savings the longer piece is taken, then the first by bytes. A piece is a part of a word that begins where a
// token of it begins; any other would change nothing.
//
// Note [Cost of an unknown word]
// A word that becomes [UNK] counts as one token more than it has characters, in place of one. So a piece that makes a
// word known saves tokens too.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace bert {

/// Different words, folded by the tokenizer, with their numbers.
using CountedWords = std::vector<std::pair<std::string, int64_t>>;

struct NewPiece {
  std::string token;  // with ## if it continues a word
  int64_t saved = 0;  // tokens, by Note [Cost of an unknown word]
};

/// At most `pieces` new ones, in the order in which they are taken; fewer if no other saves a token. Words that a piece
/// saves tokens of stand in the text `min_frequency` times at least. The order of the words does not matter.
std::vector<NewPiece> pieces_to_add(const WordPieceTokenizer& old, const CountedWords& words, int64_t pieces,
                                    int64_t min_frequency);

struct TokenCount {
  int64_t words = 0, tokens = 0, unknown = 0;  // unknown: words that are [UNK]
};

/// The tokens of all words.
TokenCount count_tokens(const WordPieceTokenizer& tokenizer, const CountedWords& words);

/// The old tokens with `pieces` after them, or first in place of [unusedN] where `use_unused`, then `reserve` more
/// tokens [unusedN].
std::vector<std::string> extended_vocabulary(std::vector<std::string> tokens, const std::vector<NewPiece>& pieces,
                                             bool use_unused, int64_t reserve);

}  // namespace bert
