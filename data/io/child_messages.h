// Numbers and texts that a child process sends to its parent (Note [Bounded child]), both sides.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "data/io/bounded_child.h"
#include "data/io/error.h"

namespace bert {

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
