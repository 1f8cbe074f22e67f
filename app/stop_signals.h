// Signals that ask a run to save and stop.
#pragma once

#include <signal.h>

#include <array>

namespace bert {

/// While it lives, the first SIGTERM, SIGINT or SIGUSR1 sets arrived(); a second one of the same kind ends the process.
/// One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool arrived();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};
  std::array<struct sigaction, 3> before_{};
};

}  // namespace bert
