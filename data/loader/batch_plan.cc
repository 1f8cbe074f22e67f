#include "data/loader/batch_plan.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace bert {
namespace {

constexpr int64_t kTriesPerBin = 8;  // pairs of bins that are tried; twice as many gain nothing measurable

struct Bins {
  std::span<const int64_t> weights;
  std::vector<std::vector<int64_t>> items;
  std::vector<int64_t> sums;

  /// Swaps the two items that bring `heavy` and `light` closest together. Returns true if a swap helped.
  bool swap_between(size_t heavy, size_t light) {
    const int64_t gap = sums[heavy] - sums[light];
    int64_t best = gap;
    std::pair<size_t, size_t> places;
    const int64_t least = gap % 2;  // the smallest possible gap
    for (size_t i = 0; i < items[heavy].size() && best > least; ++i) {
      for (size_t j = 0; j < items[light].size() && best > least; ++j) {
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

  /// Swaps items of the heaviest and the lightest bin; if no swap helps, of one of these and the next bin by weight,
  /// and so on. Returns true if a swap helped. Subtracts the tried pairs from `tries`.
  bool improve(int64_t& tries) {
    --tries;
    const auto [light, heavy] = std::minmax_element(sums.begin(), sums.end());
    if (swap_between(static_cast<size_t>(heavy - sums.begin()), static_cast<size_t>(light - sums.begin()))) return true;
    std::vector<size_t> by_sum(sums.size());
    std::iota(by_sum.begin(), by_sum.end(), 0);
    std::stable_sort(by_sum.begin(), by_sum.end(), [&](size_t a, size_t b) { return sums[a] < sums[b]; });
    for (size_t i = 1; i + 1 < by_sum.size() && tries > 0; ++i, tries -= 2) {
      if (swap_between(by_sum.back(), by_sum[i])) return true;
      if (swap_between(by_sum[by_sum.size() - 1 - i], by_sum.front())) return true;
    }
    return false;
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
    lightest_bin_first.resize(items);  // the items of the last round go to the first bins
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
  int64_t tries = kTriesPerBin * bins;
  bool improved = true;
  while (improved && tries > 0) improved = dealt.improve(tries);
  for (std::vector<int64_t>& items : dealt.items) std::sort(items.begin(), items.end());
  return std::move(dealt.items);
}

}  // namespace bert
