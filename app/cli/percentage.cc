#include "app/cli/percentage.h"

#include <unistd.h>

#include <cstdio>

namespace bert {
namespace {

constexpr int kAll = 100;

}  // namespace

Percentage::~Percentage() {
  if (line_begun_) std::fputc('\n', stderr);
}

void Percentage::update(std::string_view phase, double share) {
  const int percent = static_cast<int>(kAll * share);
  if (phase == phase_ && percent == percent_) return;
  phase_ = phase;
  percent_ = percent;
  if (isatty(STDERR_FILENO) != 0) {
    line_begun_ = percent != kAll;
    std::fprintf(stderr, "\r%s: %d %%%s", phase_.c_str(), percent, line_begun_ ? " " : "\n");
  } else if (percent == kAll) {
    std::fprintf(stderr, "%s: done\n", phase_.c_str());
  }
}

}  // namespace bert
