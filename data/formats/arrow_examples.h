// Examples in the Parquet files of NVIDIA's LDDL and in the Arrow files of Hugging Face datasets.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/formats/example_file.h"

namespace bert {

// Note [LDDL and Hugging Face]
// LDDL (github.com/NVIDIA/LDDL, lddl/dask/bert/pretrain.py), Parquet: A and B, tokens with spaces between them, without
// [CLS] and [SEP]; is_random_next; num_tokens; with static masks also masked_lm_positions, uint16 as numpy.save writes
// it, and masked_lm_labels, tokens. The tokens need a vocabulary.
// Hugging Face datasets, Arrow: input_ids; where they are there attention_mask (1...1 0...0), token_type_ids (0...0
// 1...1), labels (-100 where nothing is masked, else the original id), next_sentence_label (1: B does not follow A).
// Without token_type_ids there is one segment. Without input_ids, the column tokens, lists of strings, has the tokens
// of a text that others tokenized, [CLS] and [SEP] included; these need a vocabulary. Arrow streams and files are read,
// streams are written, as datasets.Dataset.from_file() wants them.
//
// Both tell the columns by their names, whatever the container. Files that are written here have the facts in the
// metadata of their schema, which other programs ignore. All needs libbert_arrow.so (Note [Arrow apart] in
// data/io/arrow_library.h).

/// True if `start`, the first bytes of a file, is the beginning of a Parquet file, or of an Arrow file or stream.
bool is_parquet(std::string_view start);
bool is_arrow(std::string_view start);

/// Opens a Parquet or Arrow file. `vocabulary` may be null for columns of ids. Throws InputMissing, also without
/// libbert_arrow.so, IoError, DataError.
std::unique_ptr<ExampleReader> open_arrow(const std::string& path, const Vocabulary* vocabulary);

/// Create a file of LDDL's schema, which needs the vocabulary, or of Hugging Face's. Throw InputMissing without
/// libbert_arrow.so, IoError, and DataError, add() also for an example that is no pair [CLS] A [SEP] B [SEP] (LDDL).
std::unique_ptr<ExampleWriter> create_parquet(const std::string& path, const ExampleFileInfo& info,
                                              const Vocabulary* vocabulary);
std::unique_ptr<ExampleWriter> create_arrow(const std::string& path, const ExampleFileInfo& info);

}  // namespace bert
