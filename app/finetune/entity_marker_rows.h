// Tokens around entities in a model that has none yet.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/inference/pretrained.h"

namespace bert {

/// Throws ConfigError if the vocabulary of `file`, a new one for the run, lacks one of kEntityMarkers: its rows are made
/// from those of the model later, so that none can be added here.
void expect_entity_markers(const std::vector<std::string>& vocabulary, const std::string& file);

/// Adds kEntityMarkers (data/tasks/entity_markers.h) that the vocabulary of `start` lacks, as special tokens at its end, with
/// rows of the word embeddings from the distribution of new weights, drawn with `seed`. Returns the number of tokens.
/// Throws ConfigError for a tokenizer that is no WordPiece.
int64_t add_entity_markers(Pretrained& start, int64_t seed);

}  // namespace bert
