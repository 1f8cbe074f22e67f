// The state of a directory of examples that is being made, shared by all processes that make it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/examples/pretraining_data.h"
#include "data/io/descriptor.h"

namespace bert {

// Note [Work on a directory]
// OUTPUT/.work holds everything that is not final:
//   parameters     what the examples are made of, "name=value" lines; another set is refused
//   locks          an empty file with a lock a byte: the kernel frees the locks of a process that ends in any way
//   chunk-00000    token ids of the first chunk of the text (chunk_file.h); likewise the others
//   read           number of chunks and counts of the text, written when a process has read all of it
//   target-00000   figures of a finished file of examples; the file gets its final name after it
// Each file is whole or absent. So any number of processes may work at once, one may be killed at any time, and the next
// one goes on. OUTPUT/dataset.json is written last; then .work is removed.

/// Locks by number in one file, for processes on one or more machines. A thread must not ask for a lock that another
/// thread of its process has. Where the file system has no locks, every lock is free.
class NumberedLocks {
 public:
  /// Creates the file if it is absent. Throws IoError.
  explicit NumberedLocks(const std::string& path);

  bool try_lock(int64_t number);
  /// Waits until no other process has the lock, or with `shared` only shared ones.
  void lock(int64_t number, bool shared = false);
  void unlock(int64_t number);

 private:
  bool control(int command, int type, int64_t number);
  std::string path_;
  Descriptor file_;
};

/// The first difference between two lists of parameters, "--dupe-factor is 10 there, 5 here"; empty if they are equal.
/// The names are those of the lists, with hyphens.
std::string difference(const Parameters& there, const Parameters& here);

/// "name=value" lines and back. Throws std::invalid_argument for a name or value that does not fit on its line.
std::string to_lines(const Parameters& parameters);
Parameters from_lines(const std::string& text);

class WorkDirectory {
 public:
  /// Opens or creates OUTPUT/.work. Throws IoError, and DataError, which names the difference, if the work there has
  /// other parameters, or if another process uses it and `overwrite` wants to remove it.
  WorkDirectory(const std::string& output, const Parameters& parameters, bool overwrite);

  [[nodiscard]] std::string chunk(size_t number) const;
  /// A file of examples before it gets its final name.
  [[nodiscard]] std::string unnamed_target(size_t number) const;

  [[nodiscard]] bool try_lock_chunk(size_t number) {
    return locks_->try_lock(kFirstChunk + static_cast<int64_t>(number));
  }
  void unlock_chunk(size_t number) { locks_->unlock(kFirstChunk + static_cast<int64_t>(number)); }
  [[nodiscard]] bool try_lock_target(size_t number) {
    return locks_->try_lock(kFirstTarget + static_cast<int64_t>(number));
  }
  void unlock_target(size_t number) { locks_->unlock(kFirstTarget + static_cast<int64_t>(number)); }
  void lock_end() { locks_->lock(kEnd); }

  /// Notes and reads them back; empty if there is none.
  void write_note(const std::string& name, const Parameters& note) const;
  [[nodiscard]] std::optional<Parameters> note(const std::string& name) const;
  [[nodiscard]] static std::string target_note(size_t number);

  /// Removes OUTPUT/.work, when OUTPUT is finished. Other processes may do the same at the same time.
  static void remove(const std::string& output);

 private:
  static constexpr int64_t kUse = 0, kBegin = 1, kEnd = 2, kFirstTarget = 1000, kFirstChunk = int64_t{1} << 40;

  std::string path_;
  std::optional<NumberedLocks> locks_;
};

/// The number called `name` in a note. Throws DataError if it is not there.
int64_t number_in_note(const Parameters& note, const std::string& name);

}  // namespace bert
