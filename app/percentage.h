// Progress of a phase that knows how much there is to do.
#pragma once

#include <string_view>

namespace bert {

/// "reading: 42 %" on stderr: rewritten in place on a terminal, otherwise one line at the end of each phase.
class Percentage {
 public:
  /// `share` of `phase` is done, in [0, 1].
  void update(const char* phase, double share);

 private:
  std::string_view phase_;
  int percent_ = -1;
};

}  // namespace bert
