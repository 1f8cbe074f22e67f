// Progress of a phase that knows how much there is to do.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// "reading: 42 %" on stderr: rewritten in place on a terminal, otherwise one line at the end of each phase. A line that
/// an error has interrupted is ended.
class Percentage {
 public:
  Percentage() = default;
  /// Ends the line of a phase that did not come to its end: a message follows.
  ~Percentage();
  Percentage(const Percentage&) = delete;
  Percentage& operator=(const Percentage&) = delete;

  /// `share` of `phase` is done, in [0, 1].
  void update(std::string_view phase, double share);

 private:
  std::string phase_;
  int percent_ = -1;
  bool line_begun_ = false;  // on a terminal
};

}  // namespace bert
