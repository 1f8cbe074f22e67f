// Checkpoints of Google's BERT, and of other programs on TensorFlow 1 with the same names of variables.
#pragma once

#include <string>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// True if `path` is a directory with NAME.index, the common part NAME of such files, or one of these.
bool is_google(const std::string& path);

/// Opens a checkpoint (bundle_prefix() in app/interop/files/tensor_bundle.h) with bert_config.json and vocab.txt beside it;
/// `options` may name another configuration. Every tensor is compared with its checksum, those of the optimizer too, which
/// are left out. Kernels are transposed when their bytes are asked for. Throws DataError, InputMissing, IoError.
ForeignCheckpoint read_google(const std::string& path, const ForeignOptions& options = {});

}  // namespace bert
