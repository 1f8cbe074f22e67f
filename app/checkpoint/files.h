// Checkpoints as directories of files, without LibTorch: written whole or not at all, verified, found, kept and
// removed.
//
// RUN/checkpoints/step-00000100/{model.safetensors, optimizer.safetensors, state.json, MANIFEST.json}, and the files with
// which transformers opens the directory (app/interop/hugging_face_files.h). RUN/latest is a link to the newest
// checkpoint. MANIFEST.json has the size and the XXH3-128 checksum of every file, and the checksum
// of every tensor. Its last line has the checksum of the lines before it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/safetensors.h"
#include "data/io/atomic_directory.h"

namespace bert {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kTokenizerFile = "tokenizer.model";  // only with a SentencePiece model
inline constexpr const char* kManifestFile = "MANIFEST.json";

/// The directory RUN/checkpoints/step-00000100 of step 100.
std::string checkpoint_directory(const std::string& run_directory, int64_t step);

struct CheckpointEntry {
  int64_t step;
  std::string directory;
};

/// The checkpoints of a run by step, the oldest first; none if the directory is absent. Reads names only. Throws
/// IoError if the directory cannot be read.
std::vector<CheckpointEntry> list_checkpoints(const std::string& run_directory);

struct ManifestEntry {
  int64_t bytes = 0;
  std::string checksum;
  std::map<std::string, std::string> tensors;  // name to checksum; empty if the file holds no tensors
};
using Manifest = std::map<std::string, ManifestEntry>;

/// Reads the manifest of a checkpoint and verifies the manifest's own checksum. Throws DataError, InputMissing if the
/// directory or the manifest is absent.
Manifest read_manifest(const std::string& directory);

/// Reads every byte of a checkpoint, compares it with the manifest and returns the manifest. `progress`, which may be
/// empty, is called with the share of the bytes that are read. Throws DataError with the file and, if possible, the
/// tensor; InputMissing if the directory or a file is absent.
Manifest verify_checkpoint(const std::string& directory, const std::function<void(double share)>& progress = {});

/// A sentence about files in `directory` that the manifest does not list and nobody reads, as programs that show or copy
/// directories leave them; "" if there are none.
std::string files_beside_manifest(const std::string& directory, const Manifest& manifest);

/// A checkpoint whose bytes have all been compared with its manifest.
struct VerifiedCheckpoint {
  std::string directory;
  Manifest manifest;
};

/// The checkpoint that `path` stands for. `path` is a checkpoint, or a run directory. Of a run it is the checkpoint
/// that `latest` points to; if that is absent or invalid, the newest valid checkpoint, and `note` gets a line that says
/// so. Changes nothing. Throws DataError if no checkpoint is valid, InputMissing if there is none.
VerifiedCheckpoint find_valid_checkpoint(const std::string& path,
                                         const std::function<void(const std::string& message)>& note,
                                         const std::function<void(double share)>& progress = {});

/// Returns the newest valid checkpoint and lets RUN/latest point to it; none if there are no checkpoints. Newer damaged
/// checkpoints are renamed to step-....damaged, a RUN/latest that is a copy and no link to latest.damaged, and `report`
/// gets a line for each, and for files that do not belong to the checkpoint. Half-written directories of ended processes
/// are removed. Only the holder of the RunLock may call it. Throws DataError, and renames nothing, if no checkpoint is
/// valid; IoError, also if RUN/checkpoints is not a directory.
std::optional<CheckpointEntry> newest_valid_checkpoint(const std::string& run_directory,
                                                       const std::function<void(const std::string& message)>& report);

/// Lets RUN/latest point to the checkpoint of `step` and removes all but the `keep` newest checkpoints. Throws IoError.
void finish_checkpoint(const std::string& run_directory, int64_t step, int64_t keep);

/// The size of a checkpoint before it is written: bytes of all files but the manifest, and number of tensors.
struct CheckpointSize {
  int64_t bytes = 0, tensors = 0;
};

/// Writes one checkpoint into an AtomicDirectory. Every failure throws IoError and leaves an earlier checkpoint at that
/// place as it was.
class CheckpointWriter {
 public:
  /// Throws IoError unless the disk has room for `size` and the manifest.
  CheckpointWriter(std::string directory, const CheckpointSize& size);

  void add_tensors(const std::string& file, const std::vector<TensorSource>& tensors);
  void add_text(const std::string& file, const std::string& text);
  /// Writes the manifest, syncs, renames, and syncs the parent directory. Replaces a checkpoint that is there.
  void publish();

 private:
  AtomicDirectory directory_;
  Manifest manifest_;
};

}  // namespace bert
