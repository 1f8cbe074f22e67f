// Checkpoints as tensors and state.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/checkpoint/files.h"
#include "app/checkpoint/state.h"
#include "model/state_dict.h"

namespace bert {

struct Checkpoint {
  StateDict model;
  StateDict optimizer;
  CheckpointState state;
  std::string tokenizer_model;  // bytes of a SentencePiece model; "" for WordPiece: `state` has the vocabulary
  bool averaged = false;        // load_model() only: `model` holds the moving averages
};

/// Writes RUN/checkpoints/step-<state.step>, lets RUN/latest point to it and keeps the `keep` newest checkpoints.
/// Returns its directory. Throws IoError (on a full disk with path, needed and free bytes); earlier checkpoints then
/// stay as they were, and nothing half-written stays.
std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep);

/// Writes a checkpoint into `directory`, outside of a run.
void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint);

/// Opens a checkpoint whose bytes this rank or another has verified. Its tensors are mapped files: parts that nobody
/// reads are not loaded, and the tensors must not be written to. Throws DataError, InputMissing, IoError.
Checkpoint open_checkpoint(const std::string& directory);

/// The weights to take from a checkpoint of a run with optimizer.ema_decay: their moving averages, which the run
/// evaluated, or the weights themselves.
enum class WeightsKind { kAveraged, kRaw };

/// Verifies every byte of a checkpoint, then reads its weights and state into new CPU tensors, without the state of the
/// optimizer. Throws DataError, InputMissing, IoError.
Checkpoint load_model(const std::string& directory, WeightsKind weights = WeightsKind::kAveraged);
/// The same for a checkpoint that find_valid_checkpoint() has verified.
Checkpoint load_model(const VerifiedCheckpoint& verified, WeightsKind weights = WeightsKind::kAveraged);

/// Reads all tensors of a safetensors file into new CPU tensors, in the order of their bytes. Throws DataError,
/// InputMissing, IoError.
StateDict read_safetensors(const std::string& path);

/// Writes a safetensors file that Hugging Face reads. `written`, which may be empty, is called with the bytes of each
/// piece. Throws IoError, DataError.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::function<void(size_t bytes)>& written = {});

}  // namespace bert
