// Conversion between checkpoints of this program and model directories of transformers, one tensor at a time.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "app/checkpoint/state.h"
#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// Called with the share of the work that is done.
using ShareDone = std::function<void(double share)>;

/// Verifies every byte of the checkpoint that `path` stands for (find_valid_checkpoint() in app/checkpoint/files.h), and
/// opens it as the source of a conversion. `raw_weights`: not their moving averages, which are taken where the run kept
/// them. Throws DataError, InputMissing, IoError.
ForeignCheckpoint read_own_checkpoint(const std::string& path, bool raw_weights,
                                      const std::function<void(const std::string& message)>& note,
                                      const ShareDone& progress);

/// The state of a checkpoint of step 0 with the weights of `source`. Its configuration has the model and the tokenizer.
CheckpointState state_of(const ForeignCheckpoint& source);

/// Writes a checkpoint directory of this program, of step 0 and without state of an optimizer. Throws DataError if the
/// source has no vocabulary, IoError.
void write_own_checkpoint(const std::string& directory, const ForeignCheckpoint& source, const ShareDone& progress);

/// Writes a model directory of transformers. Throws DataError, IoError.
void write_hugging_face(const std::string& directory, const ForeignCheckpoint& source, const ShareDone& progress);

/// The files beside the weights of `source`, by name: hugging_face_files(), and tokenizer.model of a SentencePiece model.
std::map<std::string, std::string> files_beside(const ForeignCheckpoint& source);

}  // namespace bert
