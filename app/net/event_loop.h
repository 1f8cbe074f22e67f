// One thread that waits for descriptors and times: everything in the launcher happens in its callbacks.
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
  using Ready = std::function<void(short)>;  // with poll's returned events
  using TimerId = std::pair<Clock::time_point, uint64_t>;

  /// Calls `ready` whenever one of poll's `events` holds for the descriptor (errors always). A second call replaces it.
  void watch(int descriptor, short events, Ready ready);
  /// Waits for other events from now on.
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
