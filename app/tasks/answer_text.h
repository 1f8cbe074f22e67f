// Tokens of an answer to its text in the context.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The part of `original`, words of the context, that `tokens` stand for: "Steve Smith" for "steve smith" in
/// "Steve Smith's". It is `original` itself where the two cannot be aligned, and for tokenizers other than WordPiece.
/// Source: run_squad.py (get_final_text).
std::string answer_text(const std::vector<std::string>& tokens, const std::string& original,
                        const Tokenizer& tokenizer);

/// The same for the tokens' text: words joined by spaces. `config` is that of their tokenizer.
std::string align_answer(const std::string& tokens_text, const std::string& original, const TokenizerConfig& config);

}  // namespace bert
