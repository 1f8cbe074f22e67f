#include "data/loader/batch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>
#include <queue>
#include <set>
#include <stdexcept>
#include <tuple>
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
    std::pair<size_t, size_t> best_pair;
    const int64_t least = gap % 2;  // the smallest possible gap
    for (size_t i = 0; i < items[heavy].size() && best > least; ++i) {
      for (size_t j = 0; j < items[light].size() && best > least; ++j) {
        const int64_t moved = weight(items[heavy][i]) - weight(items[light][j]);
        const int64_t left = std::abs(gap - 2 * moved);
        if (left < best) {
          best = left;
          best_pair = {i, j};
        }
      }
    }
    if (best == gap) return false;
    int64_t &from = items[heavy][best_pair.first], &to = items[light][best_pair.second];
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
    std::ranges::stable_sort(by_sum, [&](size_t a, size_t b) { return sums[a] < sums[b]; });
    for (size_t i = 1; i + 1 < by_sum.size() && tries > 0; ++i, tries -= 2) {
      if (swap_between(by_sum.back(), by_sum[i])) return true;
      if (swap_between(by_sum[by_sum.size() - 1 - i], by_sum.front())) return true;
    }
    return false;
  }

  [[nodiscard]] int64_t weight(int64_t item) const { return weights[static_cast<size_t>(item)]; }
};

/// The items, heaviest first.
std::vector<int64_t> heaviest_first(std::span<const int64_t> weights) {
  std::vector<int64_t> items(weights.size());
  std::iota(items.begin(), items.end(), 0);
  std::ranges::stable_sort(
      items, [&](int64_t a, int64_t b) { return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)]; });
  return items;
}

struct Packing {
  std::vector<std::vector<int64_t>> bins;
  int64_t left_over = 0;  // weight of the items that no bin has room for
};

/// Puts each item, heaviest first, into the bin that it leaves fullest.
Packing pack_best_fit(std::span<const int64_t> weights, int64_t capacity, size_t bins) {
  Packing packing;
  std::set<std::pair<int64_t, size_t>> by_room;  // room and number of each bin
  for (const int64_t item : heaviest_first(weights)) {
    const int64_t weight = weights[static_cast<size_t>(item)];
    const auto best = by_room.lower_bound({weight, 0});
    int64_t room = capacity;
    size_t bin = packing.bins.size();
    if (best != by_room.end()) {
      std::tie(room, bin) = *best;
      by_room.erase(best);
    } else if (bin < bins) {
      packing.bins.emplace_back();
    } else {
      packing.left_over += weight;
      continue;
    }
    packing.bins[bin].push_back(item);
    by_room.emplace(room - weight, bin);
  }
  return packing;
}

std::vector<std::vector<int64_t>> with_ascending_items(std::vector<std::vector<int64_t>> bins) {
  for (std::vector<int64_t>& items : bins) std::ranges::sort(items);
  return bins;
}

}  // namespace

std::vector<std::vector<int64_t>> deal_evenly(std::span<const int64_t> weights, int64_t bins) {
  if (bins < 1) throw std::invalid_argument("deal_evenly: bins must be at least 1");
  const auto count = static_cast<size_t>(bins);
  Bins dealt{weights, std::vector<std::vector<int64_t>>(count), std::vector<int64_t>(count)};
  const std::vector<int64_t> sorted = heaviest_first(weights);
  std::vector<int64_t> lightest_bin_first(count);
  for (size_t begin = 0; begin < weights.size(); begin += count) {
    const size_t items = std::min(count, weights.size() - begin);
    lightest_bin_first.resize(items);  // the items of the last round go to the first bins
    std::iota(lightest_bin_first.begin(), lightest_bin_first.end(), 0);
    std::ranges::stable_sort(lightest_bin_first, [&](int64_t a, int64_t b) {
      return dealt.sums[static_cast<size_t>(a)] < dealt.sums[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < items; ++i) {
      const auto bin = static_cast<size_t>(lightest_bin_first[i]);
      dealt.items[bin].push_back(sorted[begin + i]);
      dealt.sums[bin] += dealt.weight(sorted[begin + i]);
    }
  }
  int64_t tries = kTriesPerBin * bins;
  bool improved = true;
  while (improved && tries > 0) improved = dealt.improve(tries);
  return with_ascending_items(std::move(dealt.items));
}

std::vector<std::vector<int64_t>> pack(std::span<const int64_t> weights, int64_t capacity, int64_t bins) {
  if (bins < 1) throw std::invalid_argument("pack: bins must be at least 1");
  for (const int64_t weight : weights) {
    if (weight < 1 || weight > capacity) {
      throw std::invalid_argument(fmt::format("pack: want weights from 1 to {}, got {}", capacity, weight));
    }
  }
  if (weights.empty()) return {};
  // Best-fit closes a bin only to an item without room, so every bin has this many items at least.
  const size_t fit = static_cast<size_t>(bins * (capacity / *std::ranges::max_element(weights)));
  int64_t excess = std::reduce(weights.begin(), weights.end()) - bins * capacity;
  while (true) {
    for (; excess > 0 && weights.size() > fit; weights = weights.first(weights.size() - 1)) excess -= weights.back();
    Packing packing = pack_best_fit(weights, capacity, static_cast<size_t>(bins));
    if (packing.left_over == 0) return with_ascending_items(std::move(packing.bins));
    excess = packing.left_over;
  }
}

BatchShape static_shape(const BatchShape& real, int64_t tokens, int64_t longest_row) {
  constexpr int64_t kShortest = 64, kMaskedSteps = 64, kLeastMasked = 8;
  const auto power_of_two = [](int64_t value) {
    return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(value)));
  };
  const auto parts = [](int64_t value, int64_t of) { return (value + of - 1) / of; };
  BatchShape shape{.tokens = tokens};
  shape.max_seqlen = std::min(longest_row, std::max(kShortest, power_of_two(real.max_seqlen)));
  shape.sequences = power_of_two(real.sequences + parts(tokens - real.tokens, shape.max_seqlen));
  const int64_t step = std::max(kLeastMasked, tokens / kMaskedSteps);
  shape.masked = step * std::max<int64_t>(1, parts(real.masked, step));
  return shape;
}

void split_bins(std::vector<std::vector<int64_t>>& bins, std::span<const int64_t> weights, int64_t least) {
  std::priority_queue<std::pair<int64_t, size_t>> heaviest;  // sum and number of each bin that can be halved
  const auto offer = [&](size_t bin) {
    int64_t sum = 0;
    for (const int64_t item : bins[bin]) sum += weights[static_cast<size_t>(item)];
    if (bins[bin].size() > 1) heaviest.emplace(sum, bin);
  };
  for (size_t bin = 0; bin < bins.size(); ++bin) offer(bin);
  while (static_cast<int64_t>(bins.size()) < least && !heaviest.empty()) {
    const size_t bin = heaviest.top().second;
    heaviest.pop();
    std::vector<int64_t> of_items;
    for (const int64_t item : bins[bin]) of_items.push_back(weights[static_cast<size_t>(item)]);
    std::vector<std::vector<int64_t>> halves = deal_evenly(of_items, 2);
    for (std::vector<int64_t>& half : halves) {
      for (int64_t& item : half) item = bins[bin][static_cast<size_t>(item)];
    }
    bins[bin] = std::move(halves[0]);
    bins.push_back(std::move(halves[1]));
    offer(bin);
    offer(bins.size() - 1);
  }
}

std::vector<std::vector<int64_t>> group_by_weight(std::span<const int64_t> weights, int64_t size, int64_t width) {
  if (size < 1 || width < 1 || weights.size() % static_cast<size_t>(size) != 0) {
    throw std::invalid_argument("group_by_weight: want groups of a size that divides the number of items, and a width");
  }
  std::vector<int64_t> classes;
  for (const int64_t weight : weights) classes.push_back((weight + width - 1) / width);
  const std::vector<int64_t> sorted = heaviest_first(classes);
  std::vector<std::vector<int64_t>> groups;
  for (auto begin = sorted.begin(); begin != sorted.end(); begin += size) groups.emplace_back(begin, begin + size);
  return with_ascending_items(std::move(groups));
}

}  // namespace bert
