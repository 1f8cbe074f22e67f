// Progress of work whose total is known.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace bert {

/// Prints "reading: 42 %" on standard error: rewritten in place on a terminal, otherwise one line at the end of each
/// phase. With an amount of work, a terminal also shows the rate and the time that is left: "reading: 42 %, 18.3 MB/s,
/// 2:05 left", and elsewhere a line is printed every minute.
class Percentage {
 public:
  Percentage() = default;
  /// Ends the line of an unfinished phase, so that an error message starts on a line of its own.
  ~Percentage();
  Percentage(const Percentage&) = delete;
  Percentage& operator=(const Percentage&) = delete;

  /// Shows that `share` of `phase` is done; `share` is in [0, 1].
  void update(std::string_view phase, double share);
  /// Shows that `done` of `total` units are done. The first call of a phase tells what was done before it.
  void update(std::string_view phase, double done, double total, std::string_view unit);

 private:
  using Clock = std::chrono::steady_clock;
  void show(std::string_view phase, int percent, const std::string& rate);

  std::string phase_;
  int percent_ = -1;
  bool line_begun_ = false;  // the terminal shows an unfinished line
  size_t shown_ = 0;         // characters of that line
  std::string measured_;     // the phase that the members below belong to
  double first_done_ = 0;
  Clock::time_point first_, last_;  // of the phase, and when its rate was shown
};

}  // namespace bert
