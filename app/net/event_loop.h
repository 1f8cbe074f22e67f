// A loop in one thread that waits for descriptors and times. Everything in the launcher happens in its callbacks.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace bert {

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;
  using Ready = std::function<void(short)>;  // gets the events that poll returned
  using TimerId = std::pair<Clock::time_point, uint64_t>;

  /// Calls `ready` when one of poll's `events` (or an error) occurs on the descriptor. A second call replaces the
  /// first.
  void watch(int descriptor, short events, Ready ready);
  /// Changes the events that a watched descriptor waits for.
  void set_events(int descriptor, short events);
  void unwatch(int descriptor);

  /// Calls `due` once, after `seconds`.
  TimerId after(double seconds, std::function<void()> due);
  void cancel(const TimerId& timer) { timers_.erase(timer); }

  /// Waits for the next event or time and runs what is due.
  void run_once();

 private:
  struct Watch {
    uint64_t id;
    short events;
    Ready ready;
  };
  std::map<int, Watch> watches_;
  std::map<TimerId, std::function<void()>> timers_;
  uint64_t next_id_ = 0;
};

}  // namespace bert
