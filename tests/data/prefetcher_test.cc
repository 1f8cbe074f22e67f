#include "data/loader/prefetcher.h"

#include <atomic>
#include <memory>
#include <stdexcept>

#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("Prefetcher hands over every item in order, then nothing", "[unit][dataloader]") {
  int made = 0;
  Prefetcher<int> prefetcher([&]() -> std::optional<int> { return made < 100 ? std::optional(made++) : std::nullopt; },
                             3);
  for (int i = 0; i < 100; ++i) REQUIRE(prefetcher.next() == i);
  CHECK_FALSE(prefetcher.next().has_value());
  CHECK_FALSE(prefetcher.next().has_value());
}

TEST_CASE("Prefetcher makes no more items ahead than its depth", "[unit][dataloader]") {
  std::atomic<int> made{0};
  Prefetcher<int> prefetcher([&] { return std::optional(made++); }, 3);
  for (int i = 0; i < 50; ++i) {
    REQUIRE(prefetcher.next() == i);
    REQUIRE(made <= i + 1 + 3 + 1);  // returned ones, waiting ones, and the one that was begun when a place became free
  }
}

TEST_CASE("Prefetcher passes an exception on after the items before it, every time", "[unit][dataloader]") {
  int made = 0;
  Prefetcher<int> prefetcher(
      [&]() -> std::optional<int> {
        if (made == 2) throw std::runtime_error("damaged");
        return made++;
      },
      5);
  CHECK(prefetcher.next() == 0);
  CHECK(prefetcher.next() == 1);
  CHECK_THROWS_WITH(prefetcher.next(), "damaged");
  CHECK_THROWS_WITH(prefetcher.next(), "damaged");
}

TEST_CASE("Prefetcher stops when it is destroyed full, empty or unused, and frees its items", "[unit][dataloader]") {
  const auto counted = std::make_shared<int>(0);
  for (int taken = 0; taken < 4; ++taken) {
    Prefetcher<std::shared_ptr<int>> prefetcher([&] { return std::optional(counted); }, 2);
    for (int i = 0; i < taken; ++i) prefetcher.next();
  }
  CHECK(counted.use_count() == 1);
}

}  // namespace
}  // namespace bert
