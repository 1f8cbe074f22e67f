#include "app/retrieval/hard_negatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "app/system/errors.h"

namespace bert {
namespace {

/// True if the score of a document is too near to `positive`, the lowest of a positive one, or outside of the limits.
bool is_outside(const MiningOptions& options, float score, float positive) {
  const auto fp32 = [](const std::optional<double>& value) { return static_cast<float>(*value); };
  if (options.absolute_margin && score + fp32(options.absolute_margin) > positive) return true;
  if (options.relative_margin && score > positive - std::abs(positive) * fp32(options.relative_margin)) return true;
  if (options.max_score && score > fp32(options.max_score)) return true;
  return options.min_score && score < fp32(options.min_score);
}

}  // namespace

int64_t range_max_of(const MiningOptions& options, int64_t max_positives) {
  constexpr int64_t kSpare = 10;  // for candidates that a limit takes away
  const bool limited = options.absolute_margin || options.relative_margin || options.max_score;
  const int64_t most =
      options.range_max.value_or(options.range_min + max_positives + options.num_negatives * (limited ? kSpare : 1));
  if (options.num_negatives > most - options.range_min) {
    throw UsageError(
        fmt::format("--range-max {} and --range-min {} leave {} candidates for {} negatives; want a larger range", most,
                    options.range_min, std::max<int64_t>(most - options.range_min, 0), options.num_negatives));
  }
  return most;
}

std::vector<size_t> sample_range(PyRandom& random, size_t size, size_t count) {
  // CPython keeps a pool of all numbers, or for many numbers the set of those that are taken. Source: Lib/random.py.
  constexpr size_t kSmall = 5, kSmallPool = 21;
  constexpr int kBase = 4;
  const auto below = [&random](size_t n) {
    return static_cast<size_t>(random.randint(0, static_cast<int64_t>(n) - 1));
  };
  size_t pool_size = kSmallPool;
  if (count > kSmall)
    pool_size += static_cast<size_t>(
        std::pow(kBase, std::ceil(std::log(static_cast<double>(count * 3)) / std::log(double{kBase}))));
  std::vector<size_t> chosen;
  if (size <= pool_size) {
    std::vector<size_t> pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const size_t place = below(size - i);
      chosen.push_back(pool[place]);
      pool[place] = pool[size - i - 1];
    }
    return chosen;
  }
  std::unordered_set<size_t> taken;
  while (chosen.size() < count) {
    const size_t number = below(size);
    if (taken.insert(number).second) chosen.push_back(number);
  }
  return chosen;
}

std::vector<Neighbour> choose_negatives(const MiningOptions& options, const MinedQuery& query, PyRandom& random) {
  float lowest = std::numeric_limits<float>::infinity();
  std::unordered_set<int64_t> positives;
  for (const Neighbour& positive : query.positives) {
    lowest = std::min(lowest, positive.score);
    positives.insert(positive.place);
  }
  std::vector<Neighbour> candidates;
  for (const Neighbour& near : query.nearest) {
    if (std::ssize(candidates) == query.range_max) break;
    if (!positives.contains(near.place) && !is_outside(options, near.score, lowest)) candidates.push_back(near);
  }
  const auto passed = std::min<std::ptrdiff_t>(options.range_min, std::ssize(candidates));
  candidates.erase(candidates.begin(), candidates.begin() + passed);
  const auto wanted = static_cast<size_t>(options.num_negatives);
  if (options.sampling == Sampling::kRandom) {
    // As there, a query with too few candidates draws too: those that follow get the same numbers.
    std::vector<size_t> places = sample_range(random, std::max(candidates.size(), wanted), wanted);
    std::sort(places.begin(), places.end());
    std::vector<Neighbour> chosen;
    for (const size_t place : places) {
      if (place < candidates.size()) chosen.push_back(candidates[place]);
    }
    return chosen;
  }
  if (candidates.size() > wanted) candidates.resize(wanted);
  return candidates;
}

}  // namespace bert
