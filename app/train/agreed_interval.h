// A span of time that ends at the same step on all ranks.
#pragma once

#include <chrono>
#include <utility>

#include "app/distributed/process_group.h"

namespace bert {

/// Rank 0 has the clock. With several ranks an answer is that to the call before, so no rank waits for it.
class AgreedInterval {
 public:
  /// `minutes` 0: the interval never ends.
  AgreedInterval(const ProcessGroupPtr& group, double minutes)
      : measures_(get_rank(group) == 0), delayed_(get_world_size(group) > 1), length_(60 * minutes), flag_(group) {}

  /// True on all ranks if the interval has ended. Every rank calls it once before each step. The first call after
  /// restart() is never true, so that a step lies between two ends however short the interval is.
  bool ended() {
    if (length_.count() == 0) return false;
    const bool first =
        std::exchange(restarted_, false);  // with several ranks its answer belongs to the interval before
    const bool asks = measures_ && !asked_ && (delayed_ || !first) && Clock::now() - begin_ >= length_;
    asked_ = asked_ || asks;
    return flag_.exchange(asks) && !first;
  }
  /// From now on the interval never ends. Every rank calls it.
  void stop() { length_ = length_.zero(); }
  /// Begins an interval of `minutes`. Every rank calls it.
  void restart(double minutes) {
    length_ = std::chrono::duration<double>(60 * minutes);
    restart();
  }
  /// Begins the interval anew. Every rank calls it.
  void restart() {
    begin_ = Clock::now();
    restarted_ = true;
    asked_ = false;
  }

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
