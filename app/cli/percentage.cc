#include "app/cli/percentage.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace bert {
namespace {

constexpr int kAll = 100;
constexpr std::chrono::milliseconds kTerminalInterval{500}, kLogInterval{60'000};

/// "2:05", "1:02:05".
std::string duration(double seconds) {
  const auto all = static_cast<int64_t>(seconds);
  const int64_t hours = all / 3600, minutes = all / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, all % 60)
                   : fmt::format("{}:{:02}", minutes, all % 60);
}

}  // namespace

Percentage::~Percentage() {
  if (line_begun_) std::fputc('\n', stderr);
}

void Percentage::update(std::string_view phase, double share) {
  const int percent = static_cast<int>(kAll * share);
  if (phase == phase_ && percent == percent_) return;
  show(phase, percent, "");
}

void Percentage::update(std::string_view phase, double done, double total, std::string_view unit) {
  const Clock::time_point now = Clock::now();
  const bool terminal = isatty(STDERR_FILENO) != 0, first = phase != measured_;
  if (first) {
    measured_ = phase;
    first_done_ = done;
    first_ = last_ = now;
  }
  const int percent = total > 0 ? std::min(kAll, static_cast<int>(kAll * (done / total))) : kAll;
  if (first && terminal && percent < kAll) return show(phase, percent, "");
  if (percent == kAll ? phase == phase_ && percent == percent_
                      : now - last_ < (terminal ? kTerminalInterval : kLogInterval))
    return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - first_).count();
  const double rate = seconds > 0 ? (done - first_done_) / seconds : 0;
  std::string text;
  if (rate > 0) {
    text = fmt::format(", {:.{}f} {}/s", rate, rate < 10 ? 1 : 0, unit);
    if (percent < kAll) text += fmt::format(", {} left", duration((total - done) / rate));
  }
  show(phase, percent, text);
}

void Percentage::show(std::string_view phase, int percent, const std::string& rate) {
  phase_ = phase;
  percent_ = percent;
  if (isatty(STDERR_FILENO) != 0) {
    line_begun_ = percent != kAll;
    const std::string line = fmt::format("{}: {} %{}", phase_, percent, rate);
    std::fprintf(stderr, "\r%-*s%s", static_cast<int>(shown_), line.c_str(), line_begun_ ? " " : "\n");
    shown_ = line_begun_ ? line.size() : 0;
  } else if (percent == kAll) {
    std::fprintf(stderr, "%s: done%s\n", phase_.c_str(), rate.c_str());
  } else if (!rate.empty()) {
    std::fprintf(stderr, "%s: %d %%%s\n", phase_.c_str(), percent, rate.c_str());
  }
}

}  // namespace bert
