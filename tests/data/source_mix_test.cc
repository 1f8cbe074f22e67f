#include "data/loader/source_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "data/loader/example_order.h"
#include "tests/testing.h"

namespace bert {
namespace {

std::string pattern(const std::vector<double>& weights) {
  const SourceMix mix(weights);
  std::string result;
  for (int64_t i = 0; i < mix.pattern_length(); ++i) result += static_cast<char>('A' + mix(i).source);
  return result;
}

}  // namespace

TEST_CASE("Sources alternate by weight", "[unit]") {
  CHECK(pattern({1}) == "A");
  CHECK(pattern({2, 2}) == "AB");
  CHECK(pattern({0.75, 0.25}).size() == 4);
  CHECK(pattern({0.7, 0.3}).size() == 10);
  CHECK(pattern({1, 2, 4}).size() == 7);
  CHECK(pattern({1.0 / 3, 2.0 / 3}).size() == 3);
}

TEST_CASE("Every prefix of a mix has each source's share, with an error below one", "[unit]") {
  const std::vector<std::vector<double>> cases = {
      {1, 1}, {0.7, 0.3}, {5, 3, 1}, {0.9, 0.05, 0.03, 0.02}, {1, 1, 1, 1, 1, 1, 97}, {M_PI, M_E, 1}, {1, 65000}};
  for (const auto& weights : cases) {
    CAPTURE(weights);
    double total = 0;
    for (const double weight : weights) total += weight;
    const SourceMix mix(weights);
    std::vector<int64_t> counts(weights.size());
    for (int64_t position = 0; position < 200000; ++position) {
      const SourceMix::Place place = mix(position);
      int64_t& count = counts[static_cast<size_t>(place.source)];
      REQUIRE(place.position == count);
      ++count;
      for (size_t source = 0; source < weights.size(); ++source) {
        const double want = static_cast<double>(position + 1) * mix.share(static_cast<int64_t>(source));
        REQUIRE(std::abs(static_cast<double>(counts[source]) - want) < 1);
      }
    }
    for (size_t source = 0; source < weights.size(); ++source) {
      CHECK(std::abs(mix.share(static_cast<int64_t>(source)) - weights[source] / total) < 1.0 / (1 << 16));
    }
  }
}

TEST_CASE("A mix gives any position directly", "[unit]") {
  const SourceMix mix(std::vector<double>{0.7, 0.3});
  const int64_t far = int64_t{10} * 900'000'000'000'000;
  std::vector<int64_t> given(2);
  for (int64_t i = 0; i < 10; ++i) {
    const SourceMix::Place near = mix(i), place = mix(far + i);
    CHECK(near.position == given[static_cast<size_t>(near.source)]++);
    CHECK(place.source == near.source);
    CHECK(place.position - near.position == (near.source == 0 ? far / 10 * 7 : far / 10 * 3));
  }
}

TEST_CASE("A mix refuses weights that give a source nothing", "[unit]") {
  using testing::Contains;
  const auto mix = [](const std::vector<double>& weights) { return SourceMix(weights); };
  CHECK_THROWS_AS(mix({}), std::invalid_argument);
  for (const double weight :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    CHECK_THROWS_AS(mix({1, weight}), std::invalid_argument);
  }
  CHECK_THROWS_WITH(mix({1, 1e-9}), Contains("weight 1e-09") && Contains("less than one in 65536"));
}

TEST_CASE("Sources of one size have orders of their own", "[unit]") {
  ExampleOrder order({{"a", 30, 1}, {"b", 30, 1}}, 9, true);
  std::vector<std::vector<int64_t>> examples(2);
  for (int64_t sequence = 0; sequence < 60; ++sequence) {
    const ExampleOrder::Place place = order(sequence);
    examples[static_cast<size_t>(place.source)].push_back(place.example - order.begin_of(place.source));
  }
  REQUIRE(examples[0].size() == examples[1].size());
  CHECK(examples[0] != examples[1]);
}

TEST_CASE("Each source has epochs of its own", "[unit]") {
  const std::vector<ExampleSource> sources = {{"a", 30, 3}, {"b", 5, 1}};
  ExampleOrder order(sources, 9, true), alone({{"a", 30, 1}}, 9, true), again(sources, 9, true);
  std::vector<std::vector<int64_t>> examples(2);
  for (int64_t sequence = 0; sequence < 400; ++sequence) {
    const ExampleOrder::Place place = order(sequence);
    auto& of_source = examples[static_cast<size_t>(place.source)];
    CHECK(place.epoch == static_cast<int64_t>(of_source.size()) / (place.source == 0 ? 30 : 5));
    CHECK(place.example >= order.begin_of(place.source));
    CHECK(place.example < order.end_of(place.source));
    if (place.source == 0) CHECK(place.example == alone(static_cast<int64_t>(of_source.size())).example);
    of_source.push_back(place.example);
  }
  CHECK(examples[0].size() == 300);
  for (size_t source : {size_t{0}, size_t{1}}) {
    const size_t size = source == 0 ? 30 : 5, begin = source == 0 ? 0 : 30;
    for (size_t epoch = 0; epoch + size <= examples[source].size(); epoch += size) {
      std::vector<int64_t> sorted(examples[source].begin() + static_cast<std::ptrdiff_t>(epoch),
                                  examples[source].begin() + static_cast<std::ptrdiff_t>(epoch + size));
      std::ranges::sort(sorted);
      for (size_t i = 0; i < size; ++i) REQUIRE(sorted[i] == static_cast<int64_t>(begin + i));
    }
  }
  for (const int64_t sequence : {399, 0, 250, 17, 398}) CHECK(again(sequence) == order(sequence));  // in any order
  CHECK_THROWS_AS(ExampleOrder({{"a", 0, 1}}, 9, true), std::invalid_argument);
}

}  // namespace bert
