#include "data/loader/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>

#include "tests/testing.h"

namespace bert {
namespace {

using Bins = std::vector<std::vector<int64_t>>;

std::vector<int64_t> sums(const Bins& bins, const std::vector<int64_t>& weights) {
  std::vector<int64_t> result;
  for (const auto& bin : bins) {
    int64_t& sum = result.emplace_back(0);
    for (const int64_t item : bin) sum += weights[static_cast<size_t>(item)];
  }
  return result;
}

}  // namespace

TEST_CASE("Items are dealt evenly by number and weight", "[unit]") {
  CHECK(deal_evenly(std::vector<int64_t>{5, 4, 3, 2, 1, 0}, 2) == Bins{{0, 3, 4}, {1, 2, 5}});  // 8 and 7
  CHECK(deal_evenly(std::vector<int64_t>{1, 1, 1, 1, 1}, 3) == Bins{{0, 3}, {1, 4}, {2}});
  CHECK(deal_evenly(std::vector<int64_t>{9}, 3) == Bins{{0}, {}, {}});
  CHECK(deal_evenly(std::vector<int64_t>{}, 1) == Bins{{}});
  CHECK(deal_evenly(std::vector<int64_t>{7, 6, 3, 2}, 2) == Bins{{0, 3}, {1, 2}});  // 9 and 9
  CHECK_THROWS_AS(deal_evenly(std::vector<int64_t>{1}, 0), std::invalid_argument);
}

TEST_CASE("Every item is dealt once, and sums differ by little where there are many", "[unit]") {
  std::mt19937 random(3);
  for (const auto& [items, bins] : std::vector<std::pair<int64_t, int64_t>>{{64, 8}, {512, 64}, {4096, 32}, {100, 7}}) {
    CAPTURE(items, bins);
    std::vector<int64_t> weights;
    for (int64_t i = 0; i < items; ++i) weights.push_back(32 + static_cast<int64_t>(random() % 480));
    const Bins dealt = deal_evenly(weights, bins);
    std::vector<int64_t> all;
    for (const auto& bin : dealt) {
      CHECK(std::is_sorted(bin.begin(), bin.end()));
      CHECK(static_cast<int64_t>(bin.size()) - items / bins <= 1);
      all.insert(all.end(), bin.begin(), bin.end());
    }
    std::sort(all.begin(), all.end());
    std::vector<int64_t> want(static_cast<size_t>(items));
    std::iota(want.begin(), want.end(), 0);
    REQUIRE(all == want);
    if (items % bins != 0) continue;
    const std::vector<int64_t> totals = sums(dealt, weights);
    const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
    CHECK(static_cast<double>(*most) / static_cast<double>(*least) < 1.01);
  }
}

TEST_CASE("Bins of few items come close too, by swaps with a third one", "[unit]") {
  std::mt19937 random(5);
  constexpr int kDraws = 50;
  double mean = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    std::vector<int64_t> weights;
    for (int i = 0; i < 48; ++i) weights.push_back(32 + static_cast<int64_t>(random() % 480));
    const std::vector<int64_t> totals = sums(deal_evenly(weights, 12), weights);
    const auto [least, most] = std::minmax_element(totals.begin(), totals.end());
    mean += (static_cast<double>(*most) / static_cast<double>(*least) - 1) / kDraws;
  }
  CHECK(mean < 0.02);  // 0.0355 if only the heaviest and the lightest bin swap items
}

}  // namespace bert
