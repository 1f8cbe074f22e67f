// Signals that ask a run to save and stop.
//
// Note [Who takes a signal]
//
// A signal must not interrupt a thread that computes. oneDNN's generated matrix products (for example
// jit_avx512_common_gemm_f32) keep the pointer to their workspace in the stack pointer. The kernel writes a signal's
// frame (some kilobytes with AVX-512) below the stack pointer. There it would overwrite heap memory: a run that had to
// save aborted, and a weight could have been damaged. Therefore a separate thread listens for these signals, and all
// other threads block them.
#pragma once

#include <signal.h>

#include <thread>
#include <vector>

#include "data/io/descriptor.h"

namespace bert {

/// While the object lives, SIGTERM, SIGINT, SIGUSR1 or SIGHUP (a lost terminal) sets arrived(). A SIGHUP that the process
/// ignores, as under nohup, stays ignored. A second signal 2 s or more after the first kills the process. Earlier repeats count as the first signal, because systemd and Slurm may signal a launcher and its
/// ranks, and the launcher passes its signal on. The thread that makes the object, and threads that it starts later,
/// have these signals blocked: Note [Who takes a signal]. Only one object may exist at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] static bool arrived();
  /// The number of the first signal that has arrived; 0: none has.
  [[nodiscard]] static int first();
  /// Blocks these signals until the first object exists, so that no signal kills a starting process. That object then
  /// listens until the process ends, so that a repeated signal does not change how the process ends.
  static void hold();

 private:
  std::vector<int> taken_;
  std::vector<struct sigaction> before_;  // the actions of `taken_`
  sigset_t mask_before_{};
  Descriptor end_;  // eventfd that stops the listener
  std::thread listener_;
};

}  // namespace bert
