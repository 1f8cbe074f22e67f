// Hostile input, parsed in a child process with limits by a library that such input can crash.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/io/descriptor.h"
#include "data/io/error.h"

namespace bert {

/// Limits of a BoundedChild.
struct ChildLimits {
  int64_t memory_bytes = 0;       // address space beyond that of this process at the start
  int64_t processor_seconds = 0;  // of the child
  int64_t silent_ms = 0;          // read() waits so long for a byte
};

// Note [Bounded child]
// A library that reads files of others may crash on a damaged one, ask for all memory, or never end. BoundedChild forks
// before the library sees the file. The child parses, checks nothing that matters, and writes what it finds into a pipe;
// this process reads the pipe and trusts nothing that comes out of it. A child that dies, or that is stopped because it
// exceeds a limit, is an error of the file: DataError.
//
// The child is a fork without exec, since a library has no program of its own to start. It has only the thread that
// forked, so a lock that another thread held stays locked in it. So `work` may use: the allocator (glibc makes it safe
// across fork), system calls, and a library that no other thread uses at that moment. It must not write to the streams of
// the C or C++ library. The child leaves by _exit(): no destructor and no handler of exit() of this process runs twice.
// It has no descriptor but 0 to 2 and the pipe, so that it keeps no lock and no socket of this process, and it dies with
// the thread that made it.

/// A child process and the pipe from it. One thread uses it.
class BoundedChild {
 public:
  /// Writes into the pipe. The child ends at once if nobody reads it any more.
  using Write = std::function<void(const void* data, size_t bytes)>;

  /// Starts a child that runs `work`. `what` names the file in errors. Throws IoError if no process can be made.
  BoundedChild(std::string what, const ChildLimits& limits, const std::function<void(const Write&)>& work);
  /// Kills the child if it has not ended.
  ~BoundedChild();
  BoundedChild(const BoundedChild&) = delete;
  BoundedChild& operator=(const BoundedChild&) = delete;

  /// Reads exactly `bytes` bytes that the child wrote. Returns false if there are none left and the child has ended well.
  /// Throws DataError if the child was stopped, crashed, or ended amid these bytes, IoError.
  bool read(void* data, size_t bytes);

 private:
  /// Fills the empty buffer. Returns false at the end of the child's output.
  bool fill();
  /// Waits for the end of the child. Throws DataError unless it ended well.
  void reap();

  std::string what_;
  ChildLimits limits_;
  Descriptor pipe_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is left in the buffer
  pid_t child_ = -1;            // -1: has ended
};

/// The child's side. Every message begins with a number above 1.
class MessageSender {
 public:
  explicit MessageSender(const BoundedChild::Write& write) : write_(write) {}
  void append(const void* data, size_t bytes);
  void number(int64_t value);
  void text(const std::string& value);

 private:
  friend class MessageReader;
  void flush();

  const BoundedChild::Write& write_;
  std::string buffer_;  // what is not in the pipe yet
};

/// The parent's side.
class MessageReader {
 public:
  /// Runs `work` in a child. An exception of `work` becomes a DataError of the reader with its message; lack of memory
  /// stays that of the child. `path` names the file in errors. Throws IoError.
  MessageReader(std::string path, const ChildLimits& limits, const std::function<void(MessageSender&)>& work);

  /// The first number of the next message. Throws DataError if `work` threw.
  int64_t message();
  /// Throws DataError if the child has said less, or has not ended well.
  void take(void* data, size_t bytes);
  int64_t number();
  /// Throws DataError if the text has more than 16 MB.
  std::string text();
  /// DataError: the file, and `what` is wrong.
  [[nodiscard]] DataError bad(const std::string& what) const { return DataError(path_ + ": " + what); }

 private:
  std::string path_;
  BoundedChild child_;
};

}  // namespace bert
