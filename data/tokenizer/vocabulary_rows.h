// The rows of a new vocabulary among those of an old one.
//
// Note [Rows of a new vocabulary]
// A token of both vocabularies keeps its row. A new token gets the mean of the rows of the pieces that the old
// tokenizer gives its text: Gee et al., "Fast Vocabulary Transfer for Language Model Compression", 2022. A continuation
// ##x is tokenized as the old tokenizer does it inside of a word, with pieces that continue. [UNK] is a piece like
// others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace bert {

struct VocabularyRows {
  std::vector<std::vector<int32_t>> sources;  // for each token the old ids: its own, or those of its pieces; never none
  std::vector<int32_t> new_ids;               // the tokens that the old vocabulary lacks, ascending
  int64_t kept = 0;                           // tokens of both, with one id
  int64_t moved = 0;                          // tokens of both, with another id
  int64_t dropped = 0;                        // tokens that the new vocabulary lacks
  int64_t unknown = 0;                        // new tokens that are [UNK] to the old tokenizer

  /// "60 rows kept, 2 moved, 4 new (1 of them [UNK] so far), 3 dropped".
  [[nodiscard]] std::string text() const;
};

/// The rows of `tokens`, by Note [Rows of a new vocabulary].
VocabularyRows vocabulary_rows(const std::vector<std::string>& tokens, const WordPieceTokenizer& old);

}  // namespace bert
