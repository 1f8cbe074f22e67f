// Directories that are complete or absent: filled under a temporary name, synced, then renamed.
#pragma once

#include <string>

#include "data/io/descriptor.h"

namespace bert {

/// Makes a directory tmp-NAME-PID beside `directory`, for files that AtomicFile writes. publish() moves it to
/// `directory`. Without publish() the destructor removes it. Every failure throws IoError and leaves an earlier directory
/// at that place as it was. Directories of ended processes for the same place are removed.
class AtomicDirectory {
 public:
  /// Makes the parents of `directory` too.
  explicit AtomicDirectory(std::string directory);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// The name until publish().
  [[nodiscard]] const std::string& temporary() const { return temporary_; }
  /// The name after publish(), without a final '/'.
  [[nodiscard]] const std::string& final_name() const { return directory_; }

  /// Syncs, renames, and syncs the parent. A directory that is there is replaced and removed.
  void publish();

 private:
  void exchange_in_two_steps();

  std::string directory_, temporary_;
  Descriptor lock_;  // on the directory
};

/// The first part of the temporary names of all directories.
inline constexpr const char* kTemporaryDirectoryPrefix = "tmp-";

}  // namespace bert
