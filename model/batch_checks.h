// The check of a packed batch before a model runs on it.
#pragma once

#include "cuda_ext/packed_batch.h"
#include "model/config.h"

namespace bert {

/// Throws c10::Error if the tensors of a packed batch do not fit each other or the model. Reads shapes and dtypes alone.
void check_batch(const BertConfig& config, const PackedBatch& batch);

}  // namespace bert
