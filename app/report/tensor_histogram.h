// The distribution of the elements of a tensor.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bert {

/// Counts of finite elements in ranges of equal width from the least element to the largest. Elements that are not
/// finite are counted apart.
struct TensorHistogram {
  int64_t count = 0, not_finite = 0;
  double least = 0, most = 0, sum = 0, sum_of_squares = 0;
  std::vector<int64_t> counts;  // empty if there is no finite element; one range if all elements are equal

  /// The upper bound of range `i`.
  [[nodiscard]] double bound(size_t i) const;
};

/// The number of ranges, that of tf.summary.histogram.
inline constexpr size_t kHistogramRanges = 30;

/// The distribution of `values`, each multiplied by `factor`. Linear in their number.
TensorHistogram histogram_of(std::span<const float> values, double factor = 1);

}  // namespace bert
