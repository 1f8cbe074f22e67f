// Warnings about a vocabulary that is read without error and probably not as its maker meant it.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace bert {

/// A sentence for each of: tokens that occur twice; capital letters in more than
/// 1 % of the tokens, which lower-cased text never becomes; no
/// token with a capital letter, so that words with one become [UNK]. `name` names the vocabulary. Empty for a
/// SentencePiece model, whose rules lie in its file.
std::vector<std::string> vocabulary_warnings(const Tokenizer& tokenizer, const std::string& name);

}  // namespace bert
