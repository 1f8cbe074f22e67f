// HDF5 files of pre-training examples in NVIDIA's schema.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/formats/example_file.h"

namespace bert {

// Note [NVIDIA's HDF5]
// Datasets of the root: input_ids i4[N, S], input_mask i1[N, S], segment_ids i1[N, S], masked_lm_positions i4[N, P],
// masked_lm_ids i4[N, P], next_sentence_labels i1[N], with gzip. Position 0 ends the masks of an example. Source:
// create_pretraining_data.py in github.com/NVIDIA/DeepLearningExamples, PyTorch/LanguageModeling/BERT.
//
// The files that are written also have the filters shuffle and Fletcher-32, and the format of HDF5 1.10, in which all
// metadata have checksums. Attributes of the root hold what the schema has no place for: bert_vocabulary_checksum,
// bert_vocab_size, and bert_parameters, "key=value\n" each. Other programs ignore them. The same examples give the same
// bytes at any time.
//
// Any layout, integer type and filter of the library is read. The library crashes on some damaged files, so it reads in
// a child process (Note [Bounded child] in data/io/bounded_child.h), and refuses data that are outside of the file.

/// True if `start`, the first bytes of a file, is the beginning of an HDF5 file.
bool is_hdf5(std::string_view start);

/// Opens an HDF5 file. No other thread may be inside of the HDF5 library. Throws InputMissing, IoError, DataError.
std::unique_ptr<ExampleReader> open_hdf5(const std::string& path);

/// Creates an HDF5 file. Several threads may write files of their own. Throws IoError, and DataError for facts that the
/// format cannot hold. The writer's add() throws DataError for a mask at position 0.
std::unique_ptr<ExampleWriter> create_hdf5(const std::string& path, const ExampleFileInfo& info);

}  // namespace bert
