// Checkpoints as directories of files, without LibTorch: written whole or not at all, checked, found, kept and removed.
//
// RUN/checkpoints/step-00000100/{model.safetensors, optimizer.safetensors, state.json, MANIFEST.json}; RUN/latest is a
// link to the newest. MANIFEST.json has size and XXH3-128 of every file, and of every tensor; its last line holds the
// checksum of the lines before it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/safetensors.h"

namespace bert {

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kTokenizerFile = "tokenizer.model";  // of runs with a SentencePiece model
inline constexpr const char* kManifestFile = "MANIFEST.json";

/// RUN/checkpoints/step-00000100.
std::string checkpoint_directory(const std::string& run_directory, int64_t step);

struct CheckpointEntry {
  int64_t step;
  std::string directory;
};

/// The checkpoints of a run by step, oldest first. Nothing is read but names. None when the directory is absent. Throws
/// IoError when it cannot be read.
std::vector<CheckpointEntry> list_checkpoints(const std::string& run_directory);

struct ManifestEntry {
  int64_t bytes = 0;
  std::string checksum;
  std::map<std::string, std::string> tensors;  // name to checksum; empty for other files
};
using Manifest = std::map<std::string, ManifestEntry>;

/// What a checkpoint has, by the manifest alone, whose own checksum is compared. Throws DataError, InputMissing for an
/// absent directory or manifest.
Manifest read_manifest(const std::string& directory);

/// Reads every byte of a checkpoint and compares it with its manifest, which is returned. `progress` may be empty; it is
/// told the share of the bytes that are read. Throws DataError that names the file, and the tensor where it can;
/// InputMissing for an absent directory or file.
Manifest verify_checkpoint(const std::string& directory, const std::function<void(double share)>& progress = {});

/// A checkpoint all of whose bytes were compared with its manifest.
struct VerifiedCheckpoint {
  std::string directory;
  Manifest manifest;
};

/// The checkpoint that `path` stands for: `path` itself, or of a run directory the one that `latest` points to; where
/// that is not there or not valid, the newest that is, and `note` is told so in a line. Changes nothing. Throws
/// DataError when none is valid, InputMissing when there is none.
VerifiedCheckpoint find_valid_checkpoint(const std::string& path,
                                         const std::function<void(const std::string& message)>& note,
                                         const std::function<void(double share)>& progress = {});

/// The newest checkpoint that verifies; RUN/latest points to it afterwards. Newer ones that do not are renamed to
/// step-....damaged, and `report` is told which and why; directories that an ended process has left half-written are
/// removed. For the holder of the RunLock only. Throws IoError, also when RUN/checkpoints is no directory.
std::optional<CheckpointEntry> newest_valid_checkpoint(const std::string& run_directory,
                                                       const std::function<void(const std::string& message)>& report);

/// Points RUN/latest to a step's checkpoint and removes all but the `keep` newest. Throws IoError.
void finish_checkpoint(const std::string& run_directory, int64_t step, int64_t keep);

/// What a checkpoint is going to be: bytes of all files but the manifest, and tensors in them.
struct CheckpointSize {
  int64_t bytes = 0, tensors = 0;
};

/// Writes one checkpoint into a temporary directory beside its place; publish() moves it there. Without publish() the
/// destructor removes it. Every failure throws IoError, and what was at the place before stays.
class CheckpointWriter {
 public:
  /// Room for `size`, with its manifest, must be free on the disk.
  CheckpointWriter(std::string directory, const CheckpointSize& size);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void add_tensors(const std::string& file, const std::vector<TensorSource>& tensors);
  void add_text(const std::string& file, const std::string& text);
  /// Manifest, fsync, rename, fsync of the parent. A checkpoint already there is replaced.
  void publish();

 private:
  std::string directory_, temporary_;
  Manifest manifest_;
};

}  // namespace bert
