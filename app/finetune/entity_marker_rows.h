// Tokens around entities in a model that has none yet.
#pragma once

#include <cstdint>

#include "app/inference/pretrained.h"

namespace bert {

/// Adds kEntityMarkers (data/tasks/entity_markers.h) that the vocabulary of `start` lacks, as special tokens at its end, with
/// rows of the word embeddings from the distribution of new weights, drawn with `seed`. Returns the number of tokens.
/// Throws ConfigError for a tokenizer that is no WordPiece.
int64_t add_entity_markers(Pretrained& start, int64_t seed);

}  // namespace bert
