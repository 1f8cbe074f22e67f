// The interval between checkpoints in minutes, on which all ranks agree.
#pragma once

#include <chrono>

#include "app/distributed/process_group.h"

namespace bert {

/// Rank 0 has the clock. With several ranks an answer is that to the call before, so no rank waits for it.
class AgreedInterval {
 public:
  /// `minutes` 0: the interval never ends.
  AgreedInterval(const ProcessGroupPtr& group, double minutes);

  /// True on all ranks if the interval has ended. Every rank calls it once before each step. The first call after
  /// restart() is never true, so that a step lies between two ends however short the interval is.
  bool ended();
  /// Begins the interval anew. Every rank calls it.
  void restart();

 private:
  using Clock = std::chrono::steady_clock;
  bool measures_, delayed_;  // this is rank 0; there are several ranks
  std::chrono::duration<double> length_;
  AgreedFlag flag_;
  Clock::time_point begin_ = Clock::now();
  bool restarted_ = true;  // since the last call of ended()
  bool asked_ = false;     // by this rank, since restart()
};

}  // namespace bert
