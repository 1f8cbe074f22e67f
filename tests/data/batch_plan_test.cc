#include "data/loader/batch_plan.h"

#include <algorithm>
#include <fstream>
#include <iterator>
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

TEST_CASE("Packing fills bins and keeps to their capacity", "[unit]") {
  CHECK(pack(std::vector<int64_t>{6, 5, 4, 3, 2}, 10, 1) == Bins{{0, 2}, {1, 3, 4}});
  CHECK(pack(std::vector<int64_t>{4, 4, 4}, 10, 1) == Bins{{0, 2}, {1}});
  CHECK(pack(std::vector<int64_t>{4, 4, 4}, 100, 1) == Bins{{0, 1, 2}});
  CHECK(pack(std::vector<int64_t>{1, 1, 1}, 100, 2).size() == 2);  // a bin for each of two ranks
  CHECK(pack(std::vector<int64_t>{1}, 100, 2).size() == 1);
  CHECK(pack(std::vector<int64_t>{}, 100, 2).empty());
  CHECK_THROWS_AS(pack(std::vector<int64_t>{101}, 100, 1), std::invalid_argument);
  CHECK_THROWS_AS(pack(std::vector<int64_t>{0}, 100, 1), std::invalid_argument);
}

TEST_CASE("Packing fills 99 % with the lengths of Wikipedia", "[unit]") {
  std::ifstream file(testing::shared_data() + "/../peers/lengths_wikipedia_512.txt");
  if (!file) BERT_SKIP("needs ../shared/peers/lengths_wikipedia_512.txt");
  const std::vector<int64_t> lengths(std::istream_iterator<int64_t>(file), {});
  REQUIRE(lengths.size() == 2048);
  const auto fill = [&](int64_t capacity) {
    const Bins bins = pack(lengths, capacity, 1);
    std::vector<int64_t> all;
    for (const auto& bin : bins) {
      CHECK(std::is_sorted(bin.begin(), bin.end()));
      all.insert(all.end(), bin.begin(), bin.end());
    }
    std::sort(all.begin(), all.end());
    for (size_t i = 0; i < lengths.size(); ++i) REQUIRE(all.at(i) == static_cast<int64_t>(i));
    const std::vector<int64_t> filled = sums(bins, lengths);
    CHECK(*std::max_element(filled.begin(), filled.end()) <= capacity);
    return static_cast<double>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
           static_cast<double>(static_cast<int64_t>(bins.size()) * capacity);
  };
  CHECK(fill(512) > 0.99);  // NVIDIA's packing of whole Wikipedia: 0.9933 (input_preprocessing/packed_data/README.md)
  CHECK(fill(1024) > 0.99);
  CHECK(fill(4096) > 0.99);
  CHECK(fill(8192) > 0.98);  // 62.6 bins are needed, so 63 are taken
}

TEST_CASE("Sequences of similar length share a group", "[unit]") {
  CHECK(group_by_weight(std::vector<int64_t>{10, 70, 64, 120, 1, 65}, 2, 64) == Bins{{1, 3}, {0, 5}, {2, 4}});
  CHECK(group_by_weight(std::vector<int64_t>{3, 2, 1}, 1, 1) == Bins{{0}, {1}, {2}});
  CHECK_THROWS_AS(group_by_weight(std::vector<int64_t>{3, 2, 1}, 2, 1), std::invalid_argument);
}

}  // namespace bert
