// Progress of work whose total is known.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Prints "reading: 42 %" on standard error: rewritten in place on a terminal, otherwise one line at the end of each
/// phase.
class Percentage {
 public:
  Percentage() = default;
  /// Ends the line of an unfinished phase, so that an error message starts on a line of its own.
  ~Percentage();
  Percentage(const Percentage&) = delete;
  Percentage& operator=(const Percentage&) = delete;

  /// Shows that `share` of `phase` is done; `share` is in [0, 1].
  void update(std::string_view phase, double share);

 private:
  std::string phase_;
  int percent_ = -1;
  bool line_begun_ = false;  // the terminal shows an unfinished line
};

}  // namespace bert
