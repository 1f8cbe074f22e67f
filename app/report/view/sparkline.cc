#include "app/report/view/sparkline.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace bert {

std::string sparkline(const std::vector<double>& values, size_t columns) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (finite.empty() || columns == 0) return "";
  const size_t count = std::min(columns, finite.size());
  std::vector<double> means;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = finite.begin() + static_cast<std::ptrdiff_t>(i * finite.size() / count);
    const auto end = finite.begin() + static_cast<std::ptrdiff_t>((i + 1) * finite.size() / count);
    means.push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin));
  }
  constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  const double scale = *high > *low ? 7 / (*high - *low) : 0;
  std::string line;
  for (const double mean : means) line += kBlocks[static_cast<size_t>(std::lround((mean - *low) * scale))];
  return line;
}

}  // namespace bert
