// Signals that ask a run to save and stop.
//
// Note [Who takes a signal]
//
// No thread that computes may take one: oneDNN's generated matrix products (jit_avx512_common_gemm_f32 and its like)
// keep the pointer to their workspace in the stack pointer, and the kernel writes a signal's frame, some kilobytes with
// AVX-512, below where that points. On the heap that is other people's memory: a run that was to save aborted, or could
// have saved a damaged weight. So a thread of its own listens, and all others block these signals.
#pragma once

#include <signal.h>

#include <array>
#include <thread>

#include "data/io/descriptor.h"

namespace bert {

/// While it lives, SIGTERM, SIGINT or SIGUSR1 sets arrived(). Whoever wants the end sends another two seconds later or
/// more, which ends the process: earlier ones are the same wish on another way, as when systemd or Slurm signals a
/// launcher and its ranks, and the launcher passes it on. The thread that makes it, and those that it starts then, have
/// these signals blocked: Note [Who takes a signal]. One object at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool arrived();
  /// From here on these signals wait for the first object, so that none ends a process that is still being started. That
  /// object then listens for good: a signal that comes twice must not change how the process ends.
  static void hold();

 private:
  static constexpr std::array<int, 3> kSignals = {SIGTERM, SIGINT, SIGUSR1};
  std::array<struct sigaction, 3> before_{};
  sigset_t mask_before_{};
  Descriptor end_;  // an eventfd that ends the listener
  std::thread listener_;
};

}  // namespace bert
