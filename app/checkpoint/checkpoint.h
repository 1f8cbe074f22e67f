// Checkpoints as tensors and state.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "cuda_ext/state_dict.h"

namespace bert {

struct TensorSource;  // app/checkpoint/safetensors.h

struct Checkpoint {
  StateDict model;
  StateDict optimizer;
  CheckpointState state;
  std::map<std::string, std::string> files = {};  // other files by name, which are written and never read here
  std::string directory = {};                     // load_model() only: the checkpoint that was read
  bool averaged = false;                          // load_model() only: `model` holds the moving averages
};

/// Writes RUN/checkpoints/step-<state.step>, lets RUN/latest point to it and keeps the `keep` newest checkpoints.
/// Returns its directory. Throws IoError (on a full disk with path, needed and free bytes); earlier checkpoints then
/// stay as they were, and nothing half-written stays.
std::string save_checkpoint(const std::string& run_directory, const Checkpoint& checkpoint, int64_t keep);

/// Writes a checkpoint into `directory`, outside of a run.
void write_checkpoint(const std::string& directory, const Checkpoint& checkpoint);

/// kMapped: the tensors are mapped files, which must not be written to; parts that nobody reads are not loaded. kNone:
/// the tensors have name, shape and dtype alone (device meta), for a rank that gets the values from another rank. Call
/// expect_whole() when mapped tensors have been read.
enum class TensorBytes { kMapped, kNone };

/// Opens a checkpoint whose bytes this rank or another has verified. Throws DataError, InputMissing, IoError.
Checkpoint open_checkpoint(const std::string& directory, TensorBytes bytes = TensorBytes::kMapped);

/// The weights to take from a checkpoint of a run with optimizer.ema_decay: their moving averages, which the run
/// evaluated, or the weights themselves.
enum class WeightsKind { kAveraged, kRaw };

/// Verifies every byte of the checkpoint that `path` stands for, then opens its weights and state, without the state of
/// the optimizer. The tensors are mapped files, which must not be written to: clone() gives a copy. `path` is a
/// checkpoint or a run directory. Of a run it is the latest checkpoint; if that is absent or damaged, the newest valid
/// one, and `note` gets a line that says so. `progress`, which may be empty, is called with the share of the bytes that
/// are verified. Throws DataError, InputMissing, IoError.
Checkpoint load_model(
    const std::string& path, WeightsKind weights = WeightsKind::kAveraged,
    const std::function<void(const std::string& message)>& note = [](const std::string&) {},
    const std::function<void(double share)>& progress = {});

/// Tensors of `sources`: over its mapping if a source has one, else new CPU tensors; with kNone, of device meta. Mapped
/// tensors must not be written to. Throws DataError if the bytes of a tensor do not have its size.
StateDict read_tensors(const std::vector<TensorSource>& sources, TensorBytes bytes = TensorBytes::kMapped);

/// Throws DataError if the file of a mapped tensor has become shorter since it was opened: call it when the tensors have
/// been read for the last time (Note [Cut mappings], data/io/mapping_guard.h).
void expect_whole(const StateDict& tensors);

/// Tensors as sources for a writer. A tensor is copied to the CPU when it is read, one at a time.
std::vector<TensorSource> sources_of(const StateDict& tensors);

/// Reads all tensors of a safetensors file into new CPU tensors, in the order of their bytes. Throws DataError,
/// InputMissing, IoError.
StateDict read_safetensors(const std::string& path);

/// Writes a safetensors file that Hugging Face reads. `written`, which may be empty, is called with the bytes of each
/// piece. Throws IoError, DataError.
void save_safetensors(const std::string& path, const StateDict& tensors,
                      const std::function<void(size_t bytes)>& written = {});

}  // namespace bert
