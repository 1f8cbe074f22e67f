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
  std::string tokenizer_model;  // bytes of a SentencePiece model; "" with a WordPiece vocabulary, which `state` has
  bool averaged = false;        // `model` holds moving averages, of load_model()
};

/// Writes RUN/checkpoints/step-<state.step>, points RUN/latest to it and keeps the `keep` newest. Returns its
/// directory. When it throws (IoError with path, needed and free on a full disk), earlier checkpoints are as they were
/// and nothing half-written stays.
std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep);

/// Writes a checkpoint at `directory`, outside of a run.
void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint);

/// Verifies every byte of a checkpoint, then reads it into new CPU tensors. Throws DataError, InputMissing, IoError.
Checkpoint load_checkpoint(const std::string& directory);

/// A checkpoint whose bytes this rank or another has verified. Its tensors are its files, mapped: what is not looked at
/// is not read, and nothing may be written to them. Throws DataError, InputMissing, IoError.
Checkpoint open_checkpoint(const std::string& directory);

/// Of a checkpoint of a run with optimizer.ema_decay: the moving averages of the weights, which the run evaluated, or
/// the weights themselves.
enum class WeightsKind { kAveraged, kRaw };

/// load_checkpoint() without the optimizer's state.
Checkpoint load_model(const std::string& directory, WeightsKind weights = WeightsKind::kAveraged);
/// The same of one that find_valid_checkpoint() has verified.
Checkpoint load_model(const VerifiedCheckpoint& verified, WeightsKind weights = WeightsKind::kAveraged);

/// All tensors of a safetensors file, new on the CPU, in the order of their bytes. Throws DataError, InputMissing,
/// IoError.
StateDict read_safetensors(const std::string& path);

/// Writes a safetensors file that Hugging Face reads. `written` may be empty; it is told the bytes of every piece.
/// Throws IoError, DataError.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::function<void(size_t bytes)>& written = {});

}  // namespace bert
