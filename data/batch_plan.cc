#include "data/batch_plan.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace bert {
namespace {

constexpr int64_t kSwapsPerBin = 4;  // more gain nothing that could be seen

struct Bins {
  std::span<const int64_t> weights;
  std::vector<std::vector<int64_t>> items;
  std::vector<int64_t> sums;

  /// Swaps the two items that bring `heavy` and `light` closest. Whether any did.
  bool swap_between(size_t heavy, size_t light) {
    const int64_t gap = sums[heavy] - sums[light];
    int64_t best = gap;
    std::pair<size_t, size_t> places;
    for (size_t i = 0; i < items[heavy].size(); ++i) {
      for (size_t j = 0; j < items[light].size(); ++j) {
        const int64_t moved = weight(items[heavy][i]) - weight(items[light][j]);
        const int64_t left = std::abs(gap - 2 * moved);
        if (left < best) {
          best = left;
          places = {i, j};
        }
      }
    }
    if (best == gap) return false;
    int64_t &from = items[heavy][places.first], &to = items[light][places.second];
    const int64_t moved = weight(from) - weight(to);
    std::swap(from, to);
    sums[heavy] -= moved;
    sums[light] += moved;
    return true;
  }

  [[nodiscard]] int64_t weight(int64_t item) const { return weights[static_cast<size_t>(item)]; }
};

}  // namespace

std::vector<std::vector<int64_t>> deal_evenly(std::span<const int64_t> weights, int64_t bins) {
  if (bins < 1) throw std::invalid_argument("deal_evenly: bins must be at least 1");
  const auto count = static_cast<size_t>(bins);
  Bins dealt{weights, std::vector<std::vector<int64_t>>(count), std::vector<int64_t>(count)};
  std::vector<int64_t> heaviest_first(weights.size()), lightest_bin_first(count);
  std::iota(heaviest_first.begin(), heaviest_first.end(), 0);
  std::stable_sort(heaviest_first.begin(), heaviest_first.end(),
                   [&](int64_t a, int64_t b) { return dealt.weight(a) > dealt.weight(b); });
  for (size_t begin = 0; begin < weights.size(); begin += count) {
    const size_t items = std::min(count, weights.size() - begin);
    lightest_bin_first.resize(items);  // the last round goes to the first bins
    std::iota(lightest_bin_first.begin(), lightest_bin_first.end(), 0);
    std::stable_sort(lightest_bin_first.begin(), lightest_bin_first.end(), [&](int64_t a, int64_t b) {
      return dealt.sums[static_cast<size_t>(a)] < dealt.sums[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < items; ++i) {
      const auto bin = static_cast<size_t>(lightest_bin_first[i]);
      dealt.items[bin].push_back(heaviest_first[begin + i]);
      dealt.sums[bin] += dealt.weight(heaviest_first[begin + i]);
    }
  }
  for (int64_t swap = 0; swap < kSwapsPerBin * bins; ++swap) {
    const auto [light, heavy] = std::minmax_element(dealt.sums.begin(), dealt.sums.end());
    if (!dealt.swap_between(static_cast<size_t>(heavy - dealt.sums.begin()),
                            static_cast<size_t>(light - dealt.sums.begin()))) {
      break;
    }
  }
  for (std::vector<int64_t>& items : dealt.items) std::sort(items.begin(), items.end());
  return std::move(dealt.items);
}

}  // namespace bert
