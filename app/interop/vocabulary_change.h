// Another vocabulary for the weights of a checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "app/checkpoint/safetensors.h"
#include "app/interop/foreign_checkpoint.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/vocabulary_rows.h"

namespace bert {

/// The rows of new tokens: means (Note [Rows of a new vocabulary] in data/tokenizer/vocabulary_rows.h), or normal
/// numbers around 0 with this standard deviation, drawn with the seed and the token's id; zeros for the deviation 0.
struct NewRows {
  bool mean_of_pieces = true;
  double deviation = 0;
  uint64_t seed = 0;
};

/// True for a parameter with a row for each token, and for an entry of an optimizer's state about it.
bool has_vocabulary_rows(std::string_view entry);

/// `tensor` [old tokens, ...] in F64, F32, F16 or BF16 with `rows` rows. Row i has the bits of the old row of token i;
/// a new one is a mean, computed in fp64, or numbers of `new_rows`. Rows after those of `plan` are zeros. The bytes of
/// the result are valid until its next call.
TensorSource with_rows(TensorSource tensor, std::shared_ptr<const VocabularyRows> plan, int64_t rows,
                       const NewRows& new_rows);

/// Gives `checkpoint`, which has a vocabulary, that of `vocabulary`, and as many rows as it has tokens. Added tokens
/// stay added ones where the new vocabulary has them. Throws DataError for a SentencePiece model.
VocabularyRows change_vocabulary(ForeignCheckpoint& checkpoint, const Vocabulary& vocabulary,
                                 const NewRows& new_rows = {});

}  // namespace bert
