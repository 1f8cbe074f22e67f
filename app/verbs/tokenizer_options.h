// Options of the verbs that are given a vocabulary.txt.
#pragma once

#include <CLI/CLI.hpp>

#include "data/config.h"

namespace bert {

/// Adds --cased, --strip-accents and --tokenize-chinese-chars. `cased` is the help of the first.
void add_tokenizer_options(CLI::App& app, TokenizerConfig& config, const char* cased);

}  // namespace bert
