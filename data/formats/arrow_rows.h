// Rows of Arrow files to examples and back (Note [LDDL and Hugging Face] in data/formats/arrow_examples.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/examples/pretraining_data.h"
#include "data/io/arrow_library.h"
#include "data/tokenizer/vocabulary.h"

namespace bert {

/// The numbers of a one-dimensional array of integers as numpy.save writes it (numpy.lib.format, versions 1 to 3).
/// Throws DataError.
std::vector<int64_t> parse_npy(std::string_view bytes);

/// The same bytes as numpy.save(numpy.array(values, dtype=numpy.uint16)).
std::string write_npy(const std::vector<int32_t>& values);

/// Makes `example` the example in a row of LDDL's schema. Throws DataError for a token that is not in the vocabulary.
void from_lddl(const ArrowRow& row, bool masked, const Vocabulary& vocabulary, PretrainingExample& example);

/// The ids of the row's tokens. Throws DataError for a token that is not in the vocabulary.
void find_tokens(const ArrowRow& row, const Vocabulary& vocabulary, std::vector<int64_t>& ids);

/// Makes `example` the example in a row of Hugging Face's schema. Throws DataError, also if all labels are the tokens,
/// as datasets for causal language models have them: every token would be a prediction.
void from_hugging_face(const ArrowRow& row, bool masked, PretrainingExample& example);

/// The memory behind an ArrowRow that is written.
struct RowBuffers {
  std::string a, b, positions, labels_text;
  std::vector<int64_t> input_ids, attention_mask, token_type_ids, labels;
};

/// Rows of an example. Throw DataError for an example that the schema cannot hold.
ArrowRow to_lddl(const PretrainingExample& example, const Vocabulary& vocabulary, RowBuffers& buffers);
ArrowRow to_hugging_face(const PretrainingExample& example, RowBuffers& buffers);

}  // namespace bert
