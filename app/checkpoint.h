// Checkpoints as tensors and state.
#pragma once

#include <cstdint>
#include <string>

#include "app/checkpoint_files.h"
#include "app/checkpoint_state.h"
#include "model/state_dict.h"

namespace bert {

struct Checkpoint {
  StateDict model;
  StateDict optimizer;
  CheckpointState state;
  std::string tokenizer_model;  // bytes of a SentencePiece model; "" with a WordPiece vocabulary, which `state` has
  bool averaged = false;        // `model` holds moving averages
};

/// Writes RUN/checkpoints/step-<state.step>, points RUN/latest to it and keeps the `keep` newest. Returns its
/// directory. When it throws (IoError with path, needed and free on a full disk), earlier checkpoints are as they were
/// and nothing half-written stays.
std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep);

/// Writes a checkpoint at `directory`, outside of a run.
void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint);

/// kAveragedModel: the moving averages of the weights (optimizer.ema_decay) in their place where the checkpoint has
/// them, which is the model that the run evaluated.
enum class CheckpointParts { kModel, kAveragedModel, kModelAndOptimizer };

/// Verifies every byte of a checkpoint, then reads it into new CPU tensors. Throws DataError, InputMissing, IoError.
Checkpoint load_checkpoint(const std::string& directory, CheckpointParts parts = CheckpointParts::kModelAndOptimizer);

/// All tensors of a safetensors file, new on the CPU, in the order of their bytes. Throws DataError, InputMissing,
/// IoError.
StateDict read_safetensors(const std::string& path);

/// Writes a safetensors file that Hugging Face reads. Throws IoError, DataError.
void save_safetensors(const std::string& path, const StateDict& tensors);

}  // namespace bert
