// The state of a directory of examples that is being made, shared by all processes that make it.
#pragma once

#include <cstdint>
#include <functional>
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
//   removing       there while `overwrite` removes what an earlier process made; the next process goes on with that
//   target-00000   figures of a finished file of examples; the file gets its final name after it
// A file of examples is written in .work of the directory that it gets its name in: a rename stays on one file system, and
// the directories may be on two. So the directory of the held-out examples has a .work of its own, for such files alone.
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

/// "name=value" lines and back. A value may have line breaks, which are escaped.
std::string to_lines(const Parameters& parameters);
Parameters from_lines(const std::string& text);

/// A file of "name=value" lines.
struct Note {
  std::string path;
  Parameters values;

  /// Throws IoError, InputMissing.
  static Note read(const std::string& path);
  /// The number with this name. Throws DataError, with file and name, if there is none from `low` to `high`.
  [[nodiscard]] int64_t number(const std::string& name, int64_t low = 0, int64_t high = INT64_MAX) const;
};

class WorkDirectory {
 public:
  /// Opens or creates .work in each of the directories; the first is OUTPUT. With `overwrite`, or if a process ended while
  /// it did so, removes the work there, and all that was made, by `remove_made`. Throws IoError, and DataError, which names
  /// the difference, if the work there has other parameters, or if another process uses it and `overwrite` wants to remove
  /// it.
  WorkDirectory(const std::vector<std::string>& directories, const Parameters& parameters, bool overwrite,
                const std::function<void()>& remove_made);

  /// The parameters of the work in OUTPUT; empty if none has begun.
  static std::optional<Note> parameters_in(const std::string& output);
  /// True if a process ended while it removed what was made in OUTPUT.
  static bool is_being_removed(const std::string& output);

  [[nodiscard]] std::string chunk(size_t number) const;
  /// The name of the file of examples `final_path` before it gets that name. No other process writes a file of this name.
  [[nodiscard]] std::string unnamed(const std::string& final_path) const;

  [[nodiscard]] bool try_lock_chunk(size_t number) {
    return locks_->try_lock(kFirstChunk + static_cast<int64_t>(number));
  }
  void unlock_chunk(size_t number) { locks_->unlock(kFirstChunk + static_cast<int64_t>(number)); }
  [[nodiscard]] bool try_lock_target(size_t number) {
    return locks_->try_lock(kFirstTarget + static_cast<int64_t>(number));
  }
  void unlock_target(size_t number) { locks_->unlock(kFirstTarget + static_cast<int64_t>(number)); }
  void lock_end() { locks_->lock(kEnd); }

  /// A directory for files without names.
  [[nodiscard]] const std::string& scratch_directory() const { return path_; }

  /// Notes and reads them back; empty if there is none.
  void write_note(const std::string& name, const Parameters& note) const;
  [[nodiscard]] std::optional<Note> note(const std::string& name) const;
  [[nodiscard]] static std::string target_note(size_t number);

  /// Removes .work of the directories, when they are finished. Other processes may do the same at the same time.
  static void remove(const std::vector<std::string>& directories);
  /// The same, unless a process works there.
  static void remove_abandoned(const std::vector<std::string>& directories);

 private:
  void start_over(bool overwrite, const Parameters& parameters, const std::function<void()>& remove_made);

  static constexpr int64_t kUse = 0, kBegin = 1, kEnd = 2, kFirstTarget = 1000, kFirstChunk = int64_t{1} << 40;

  std::string path_, process_;  // process_: a name of this process that no other has
  std::optional<NumberedLocks> locks_;
};

}  // namespace bert
