// torchrun's file-based timers: ranks say by when they will be through with something, and are killed when they are
// not.
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

/// A named pipe, TORCHELASTIC_TIMER_FILE of the ranks, into which torch.distributed.elastic's FileTimerClient writes
/// lines {"version": 1, "pid": ..., "scope_id": ..., "expiration_time": seconds since 1970, "signal": ...}: a process
/// acquires a timer of that name, or with a negative time releases it. On expiry `expired` is called once; a signal of
/// 0 or less means that the timer only counts. Of lines that are none the first is told.
class FileTimer {
 public:
  using Expired = std::function<void(pid_t pid, const std::string& scope, int signal)>;

  /// Makes the pipe, in place of one that is there; "" is a new name in the temporary directory. Throws IoError.
  FileTimer(EventLoop& loop, const std::string& path, Expired expired);
  ~FileTimer();
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Forgets all timers: the processes that had them are gone.
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
