#include "data/tasks/text_windows.h"

#include <algorithm>

namespace bert {

std::vector<TextWindow> text_windows(int64_t tokens, int64_t room, int64_t stride) {
  std::vector<TextWindow> windows;
  for (int64_t start = 0; start < tokens;) {
    const int64_t length = std::min(tokens - start, room);
    windows.push_back({start, length});
    if (start + length == tokens) break;
    start += std::min(length, stride);
  }
  return windows;
}

bool is_max_context(const std::vector<TextWindow>& windows, size_t index, int64_t position) {
  double best_score = -1;
  size_t best = index;
  for (size_t i = 0; i < windows.size(); ++i) {
    const int64_t left = position - windows[i].start, right = windows[i].start + windows[i].length - 1 - position;
    if (left < 0 || right < 0) continue;
    constexpr double kPerToken = 0.01;  // of the same source
    const double score =
        static_cast<double>(std::min(left, right)) + kPerToken * static_cast<double>(windows[i].length);
    if (score <= best_score) continue;
    best_score = score;
    best = i;
  }
  return best == index;
}

}  // namespace bert
