// A tokenizer from any of its files.
#pragma once

#include <memory>
#include <string>

#include "data/config.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// The help of options that name a tokenizer.
inline constexpr const char* kTokenizerFiles =
    "vocab.txt (WordPiece), a SentencePiece *.model or *.spm, or tokenizer.json of transformers or its directory";

/// A directory of transformers, or its tokenizer.json, with its added tokens: `config` does not apply, as for a
/// SentencePiece model; else make_tokenizer(). Throws InputMissing, DataError, IoError.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& path, const TokenizerConfig& config = {});

}  // namespace bert
