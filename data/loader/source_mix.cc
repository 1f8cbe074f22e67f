#include "data/loader/source_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <stdexcept>
#include <tuple>
#include <utility>

namespace bert {
namespace {

constexpr double kWhole = 1e-9;  // a number this close to an integer is one: weights are decimal fractions, as 0.7

/// `shares` of `total` positions, rounded to integers with that sum. Returns them with their largest error.
std::pair<std::vector<int64_t>, double> round_shares(const std::vector<double>& shares, int64_t total) {
  std::vector<int64_t> counts;
  double sum = 0, worst = 0;
  int64_t before = 0;
  for (const double share : shares) {  // sums are rounded, so that the counts add up to `total`
    sum += share * static_cast<double>(total);
    const int64_t upto = std::llround(sum);
    counts.push_back(upto - before);
    before = upto;
    worst = std::max(worst, std::abs(static_cast<double>(counts.back()) - share * static_cast<double>(total)));
  }
  return {counts, worst};
}

/// The numbers of positions in the pattern.
std::vector<int64_t> pattern_counts(std::span<const double> weights) {
  double total = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight <= 0) {
      throw std::invalid_argument(fmt::format("SourceMix: want weights above 0, got {}", weight));
    }
    total += weight;
  }
  std::vector<double> shares;
  for (const double weight : weights) shares.push_back(weight / total);
  std::vector<int64_t> counts;
  for (int64_t length = 1; length <= SourceMix::kLongestPattern; ++length) {
    double worst = 0;
    std::tie(counts, worst) = round_shares(shares, length);
    if (worst <= kWhole * static_cast<double>(length)) break;
  }
  for (size_t source = 0; source < counts.size(); ++source) {
    if (counts[source] > 0) continue;
    throw std::invalid_argument(fmt::format("SourceMix: weight {} of {} is less than one in {}", weights[source], total,
                                            SourceMix::kLongestPattern));
  }
  return counts;
}

}  // namespace

SourceMix::SourceMix(std::span<const double> weights) {
  if (weights.empty()) throw std::invalid_argument("SourceMix: want at least one weight");
  counts_ = pattern_counts(weights);
  const auto sources = static_cast<int64_t>(counts_.size());
  const int64_t length = std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
  std::vector<int64_t> given(counts_.size());
  for (int64_t end = 1; end <= length; ++end) {
    // In the paper's terms, a source may get the position if its debt, share * end - given, is at least 1 / (2n - 2),
    // and it must have it soonest if (1 - 1 / (2n - 2) - debt) / share is least. All terms are integers here.
    const int64_t fraction = 2 * sources - 2;
    size_t chosen = 0;
    int64_t least = 0;
    bool found = false;
    for (size_t source = 0; source < counts_.size() && sources > 1; ++source) {
      const int64_t debt = counts_[source] * end - given[source] * length;
      if (debt * fraction < length) continue;
      const int64_t slack = (fraction - 1) * length - fraction * debt;
      if (!found || slack * counts_[chosen] < least * counts_[source]) {
        chosen = source;
        least = slack;
        found = true;
      }
    }
    pattern_.push_back({static_cast<uint16_t>(chosen), static_cast<uint16_t>(given[chosen]++)});
  }
}

SourceMix::Place SourceMix::operator()(int64_t position) const {
  const int64_t round = position / pattern_length();
  const Entry entry = pattern_[static_cast<size_t>(position % pattern_length())];
  return {.source = entry.source, .position = round * counts_[entry.source] + entry.before};
}

double SourceMix::share(int64_t source) const {
  return static_cast<double>(counts_.at(static_cast<size_t>(source))) / static_cast<double>(pattern_length());
}

}  // namespace bert
