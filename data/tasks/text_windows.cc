#include "data/tasks/text_windows.h"

#include <fmt/format.h>

#include <algorithm>

namespace bert {

std::vector<TextWindow> text_windows(int64_t tokens, int64_t room, int64_t stride, int64_t most) {
  std::vector<TextWindow> windows;
  int64_t sum = 0;
  for (int64_t start = 0; start < tokens;) {
    const int64_t length = std::min(tokens - start, room);
    if (sum += length; sum > most)
      throw TooManyTokens(fmt::format("the windows of {} tokens have more than {} tokens together", tokens, most));
    windows.push_back({start, length});
    if (start + length == tokens) break;
    start += std::min(length, stride);
  }
  return windows;
}

bool is_max_context(const std::vector<TextWindow>& windows, size_t index, int64_t position) {
  double best_score = -1;
  size_t best = index;
  const auto first = std::ranges::partition_point(
      windows, [&](const TextWindow& window) { return window.start + window.length <= position; });
  for (auto i = static_cast<size_t>(first - windows.begin()); i < windows.size() && windows[i].start <= position; ++i) {
    const int64_t left = position - windows[i].start, right = windows[i].start + windows[i].length - 1 - position;
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
