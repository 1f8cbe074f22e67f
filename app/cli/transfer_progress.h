// Progress of a transfer of bytes, with its rate and the time that is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace bert {

/// Prints "enwiki.xml.bz2: 42 %, 11.8 MB/s, 18 min left" on standard error: rewritten in place on a terminal, at most
/// five times a second; otherwise one line for each tenth of the bytes.
class TransferProgress {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  explicit TransferProgress(Clock now = std::chrono::steady_clock::now) : now_(std::move(now)) {}
  /// Ends the line of an unfinished transfer, so that an error message starts on a line of its own.
  ~TransferProgress() { end_line(); }
  TransferProgress(const TransferProgress&) = delete;
  TransferProgress& operator=(const TransferProgress&) = delete;

  /// `bytes` of `of_bytes` of `name` are there. The rate counts from the first call for `name`.
  void update(const std::string& name, int64_t bytes, std::optional<int64_t> of_bytes);
  /// Ends the line on the terminal, so that another message may follow.
  void end_line();

 private:
  Clock now_;
  std::string name_;
  int64_t first_bytes_ = 0;
  int64_t tenths_ = 0;  // printed, where standard error is not a terminal
  std::chrono::steady_clock::time_point start_, shown_;
  bool line_begun_ = false;
};

}  // namespace bert
