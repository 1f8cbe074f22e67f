#include "app/report/tensor_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace bert {

double TensorHistogram::bound(size_t i) const {
  if (i + 1 >= counts.size()) return most;
  return least + (most - least) * static_cast<double>(i + 1) / static_cast<double>(counts.size());
}

TensorHistogram histogram_of(std::span<const float> values, double factor) {
  TensorHistogram result;
  result.least = std::numeric_limits<double>::infinity();
  result.most = -result.least;
  for (const float each : values) {
    const double value = factor * static_cast<double>(each);
    if (!std::isfinite(value)) {
      ++result.not_finite;
      continue;
    }
    ++result.count;
    result.least = std::min(result.least, value);
    result.most = std::max(result.most, value);
    result.sum += value;
    result.sum_of_squares += value * value;
  }
  if (result.count == 0) {
    result.least = result.most = 0;
    return result;
  }
  const double width = (result.most - result.least) / static_cast<double>(kHistogramRanges);
  if (width == 0) {
    result.counts = {result.count};
    return result;
  }
  result.counts.resize(kHistogramRanges);
  for (const float each : values) {
    const double value = factor * static_cast<double>(each);
    if (!std::isfinite(value)) continue;
    ++result.counts[std::min(static_cast<size_t>((value - result.least) / width), kHistogramRanges - 1)];
  }
  return result;
}

}  // namespace bert
