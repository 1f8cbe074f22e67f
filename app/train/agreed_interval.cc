#include "app/train/agreed_interval.h"

#include <utility>

namespace bert {

AgreedInterval::AgreedInterval(const ProcessGroupPtr& group, double minutes)
    : measures_(get_rank(group) == 0), delayed_(get_world_size(group) > 1), length_(60 * minutes), flag_(group) {}

bool AgreedInterval::ended() {
  if (length_.count() == 0) return false;
  const bool first = std::exchange(restarted_, false);  // with several ranks its answer belongs to the interval before
  const bool asks = measures_ && !asked_ && (delayed_ || !first) && Clock::now() - begin_ >= length_;
  asked_ = asked_ || asks;
  return flag_.exchange(asks) && !first;
}

void AgreedInterval::restart() {
  begin_ = Clock::now();
  restarted_ = true;
  asked_ = false;
}

}  // namespace bert
