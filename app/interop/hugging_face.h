// Model directories of transformers: config.json, model.safetensors (or shards of it), and the tokenizer's files.
#pragma once

#include <string>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// True if `path` is a directory that transformers would open as a model, or that its hub's cache keeps for one
/// (models--ORG--NAME). A checkpoint and a run directory of this program are none.
bool is_hugging_face(const std::string& path);

/// The directory with the files: `path`, or in the hub's cache the snapshot of refs/main, else the only snapshot. Throws
/// InputMissing, DataError if the cache has several snapshots and no refs/main.
std::string hugging_face_directory(const std::string& path);

/// Opens a model directory, or one of the hub's cache. The tensors are mapped files. Weights in
/// pytorch_model.bin alone are read if `options` trust it, else they are a RefusedError. Throws DataError with file and
/// field, also for another architecture than BERT's; InputMissing, IoError.
ForeignCheckpoint read_hugging_face(const std::string& path, const ForeignOptions& options = {});

}  // namespace bert
