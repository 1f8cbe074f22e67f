#include "app/parse/nearest_word.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

namespace bert {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0U : 1U)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
  constexpr size_t kFarthest = 2, kShort = 5;
  constexpr size_t kLongestWord = 100;  // the time of edit_distance() is quadratic
  std::string best;
  size_t best_distance = kFarthest + 1;
  if (word.size() > kLongestWord) return best;
  for (const std::string& candidate : words) {
    const std::string given = lower_case(word), known = lower_case(candidate);
    const bool is_short = known.size() <= kShort;
    if (is_short && given.substr(0, 1) != known.substr(0, 1)) continue;
    const size_t distance = edit_distance(given, known);
    if (distance < best_distance && distance < candidate.size() && (!is_short || distance <= 1)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace bert
