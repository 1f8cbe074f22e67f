#include "app/percentage.h"

#include <unistd.h>

#include <cstdio>

namespace bert {

void Percentage::update(const char* phase, double share) {
  const int percent = static_cast<int>(100 * share);
  if (phase == phase_ && percent == percent_) return;
  phase_ = phase;
  percent_ = percent;
  if (isatty(STDERR_FILENO) != 0) {
    std::fprintf(stderr, "\r%s: %d %%%s", phase, percent, percent == 100 ? "\n" : " ");
  } else if (percent == 100) {
    std::fprintf(stderr, "%s: done\n", phase);
  }
}

}  // namespace bert
