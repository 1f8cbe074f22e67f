#include "data/random/counter_random.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("mix_bits of a counter gives SplitMix64's published numbers", "[unit]") {
  constexpr uint64_t kSeed = 1234567, kStep = 0x9e3779b97f4a7c15;
  constexpr std::array<uint64_t, 5> kWant = {6457827717110365317U, 3203168211198807973U, 9817491932198370423U,
                                             4593380528125082431U, 16408922859458223821U};
  for (size_t i = 0; i < kWant.size(); ++i) CHECK(mix_bits(kSeed + i * kStep) == kWant[i]);
}

TEST_CASE("Draws of a CounterRandom are uniform, for one key and over keys", "[unit]") {
  constexpr int64_t kDraws = 120000, kFaces = 12;
  const double expected = static_cast<double>(kDraws) / kFaces, deviation = std::sqrt(expected * 11 / 12);
  CounterRandom one(5);
  std::array<int64_t, kFaces> of_one{}, of_keys{};
  double mean = 0;
  for (int64_t i = 0; i < kDraws; ++i) {
    ++of_one[static_cast<size_t>(one.randint(-3, 8) + 3)];
    ++of_keys[static_cast<size_t>(CounterRandom(static_cast<uint64_t>(i)).randint(0, kFaces - 1))];
    const double drawn = one.random();
    REQUIRE((drawn >= 0 && drawn < 1));
    mean += drawn / kDraws;
  }
  for (size_t face = 0; face < kFaces; ++face) {
    CHECK(std::abs(static_cast<double>(of_one[face]) - expected) < 5 * deviation);
    CHECK(std::abs(static_cast<double>(of_keys[face]) - expected) < 5 * deviation);
  }
  CHECK(std::abs(mean - 0.5) < 5 * std::sqrt(1.0 / 12 / kDraws));
  CHECK_THROWS_AS(one.randint(1, 0), std::invalid_argument);
}

TEST_CASE("A shuffle gives every order its share", "[unit]") {
  constexpr int kRounds = 60000;
  std::array<int, 27> orders{};
  for (int round = 0; round < kRounds; ++round) {
    CounterRandom random(static_cast<uint64_t>(round));
    std::vector<int> items = {0, 1, 2};
    random.shuffle(items);
    ++orders[static_cast<size_t>(9 * items[0] + 3 * items[1] + items[2])];
  }
  int seen = 0;
  for (const int count : orders) {
    if (count == 0) continue;
    ++seen;
    CHECK(std::abs(count - kRounds / 6.0) < 5 * std::sqrt(kRounds * 5.0 / 36));
  }
  CHECK(seen == 6);
}

}  // namespace
}  // namespace bert
