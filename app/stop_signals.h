// Signals that ask a run to save and stop.
#pragma once

#include <signal.h>

#include <array>
#include <stdexcept>

namespace bert {

/// A signal has asked for the end and there is nothing to save: exit code 75.
struct Preempted : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// While it lives, SIGTERM, SIGINT or SIGUSR1 sets arrived(). Whoever wants the end sends another two seconds later or
/// more, which ends the process: earlier ones are the same wish on another way, as when systemd or Slurm signals a
/// launcher and its ranks, and the launcher passes it on. One object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool arrived();
  /// From here on these signals wait for the first object, so that none ends a process that is still being started. That
  /// object's handlers then stay for good: a signal that comes twice must not change how the process ends.
  static void hold();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};
  std::array<struct sigaction, 3> before_{};
  bool held_ = false;
};

}  // namespace bert
