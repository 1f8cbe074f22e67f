// Checkpoints of NVIDIA's BERT, and other state dicts of a BERT that torch.save() wrote.
#pragma once

#include <string>
#include <vector>

#include "app/interop/foreign_checkpoint.h"

namespace bert {

/// Opens a checkpoint (app/interop/files/torch_file.h) with a configuration and a vocab.txt beside it; `options` may name
/// another configuration. The prefix "module." of DistributedDataParallel goes, and dense_act becomes dense. Tensors of the
/// optimizer are left out. Throws RefusedError without trust, DataError, InputMissing, IoError.
ForeignCheckpoint read_nvidia(const std::string& path, const ForeignOptions& options);

/// Throws RefusedError if `options` do not trust the pickle `path`.
void require_trust(const std::string& path, const ForeignOptions& options);

/// The tensors of a file of torch.save() as `path` has them, but for NVIDIA's names. Notes the keys that are left out.
/// Throws DataError, InputMissing, IoError.
std::vector<TensorSource> torch_tensors(const std::string& path, ImportReport& report);

}  // namespace bert
