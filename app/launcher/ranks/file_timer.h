// torchrun's file-based timers: a rank sets a deadline for itself and is killed if it misses the deadline.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "app/net/event_loop.h"
#include "data/io/descriptor.h"

namespace bert {

/// A named pipe, TORCHELASTIC_TIMER_FILE of the ranks. The FileTimerClient of torch.distributed.elastic writes lines
/// {"version": 1, "pid": ..., "scope_id": ..., "expiration_time": seconds since 1970, "signal": ...} into it. A line
/// sets a timer of that process and name; a negative time releases the timer. When a timer expires, `expired` is called
/// once. With a signal of 0 or less the timer is only reported. Lines that cannot be parsed are ignored; the first one
/// is reported.
class FileTimer {
 public:
  using Expired = std::function<void(pid_t pid, const std::string& scope, int signal)>;

  /// Makes the pipe and replaces an existing one. "" stands for a new name in the temporary directory. Throws IoError.
  FileTimer(EventLoop& loop, const std::string& path, Expired expired);
  ~FileTimer();
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Forgets all timers, because their processes are gone.
  void clear();

 private:
  struct Timer {
    double expiration = 0;  // seconds since 1970
    int signal = 0;
  };
  void read_some();
  void take(const std::string& line);
  void look();
  void look_at_next();

  EventLoop& loop_;
  std::string path_, pending_;
  const Expired expired_;
  Descriptor pipe_;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
  std::optional<EventLoop::TimerId> next_;
  bool complained_ = false;
};

}  // namespace bert
