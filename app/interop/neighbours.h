// The small files that lie beside weights: the configuration and the tokenizer.
#pragma once

#include <string>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// Sets model, states_case and notes of `checkpoint` from the files in `directory`. `config` names the
/// configuration; empty: bert_config.json of the directory, else its config.json.
/// - bert_config.json is Google's and NVIDIA's. Their "gelu" is the tanh form, which transformers calls gelu_new, and their
///   words have up to 200 characters; do_lower_case is in none of their files, so a vocabulary with upper case is cased.
/// - config.json is that of transformers, with its meaning.
/// Throws InputMissing if there is no configuration, DataError, IoError.
void read_neighbours(ForeignCheckpoint& checkpoint, const std::string& directory, const std::string& config);

}  // namespace bert
