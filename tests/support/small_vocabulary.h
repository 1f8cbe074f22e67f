// A vocabulary of a few pieces, for tests that need any.
#pragma once

#include "data/tokenizer/vocabulary.h"

namespace bert::testing {

/// The special tokens, letters and digits with their continuations, and some words.
inline Vocabulary small_vocabulary() {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]",  "[CLS]", "[SEP]",       "[MASK]", "the",          "un",
                                     "##aff", "##able", "cat",   "caf\xc3\xa9", "cafe",   "\xe4\xb8\xad", "."};
  for (const char* letters : {"abcdefghijklmnopqrstuvwxyz", "0123456789"}) {
    for (const char* letter = letters; *letter != '\0'; ++letter) {
      tokens.push_back({*letter});
      tokens.push_back({'#', '#', *letter});
    }
  }
  return Vocabulary(tokens);
}

}  // namespace bert::testing
