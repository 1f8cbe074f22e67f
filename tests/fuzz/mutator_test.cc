#include "tests/fuzz/mutator.h"

#include <fmt/format.h>

#include "tests/testing.h"

namespace bert::testing {
namespace {

/// 500 numbers of four digits, each once.
std::string numbers(int first) {
  std::string bytes;
  for (int i = first; i < first + 500; ++i) bytes += fmt::format("{:04} ", i);
  return bytes;
}

/// True if a run of `length` bytes of `original` occurs twice in `changed`.
bool has_copy(const std::string& original, const std::string& changed, size_t length) {
  for (size_t at = 0; at + length <= original.size(); at += 5) {
    const std::string run = original.substr(at, length);
    const size_t first = changed.find(run);
    if (first != std::string::npos && changed.find(run, first + 1) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("Mutations splice a file with itself and with another file of its format", "[unit][fuzz]") {
  constexpr int kMutations = 2000;
  constexpr size_t kEnd = 100, kLongerThanOtherRuns = 200;
  const std::string one = numbers(1000), other = numbers(2000);
  int heads = 0, tails = 0, copies = 0;
  for (uint64_t seed = 0; seed < kMutations; ++seed) {
    Mutator mutate(seed);
    const std::string changed = mutate(one, other);
    REQUIRE(changed != one);
    REQUIRE(changed != other);
    heads += changed.starts_with(one.substr(0, kEnd)) && changed.ends_with(other.substr(other.size() - kEnd));
    tails += changed.starts_with(other.substr(0, kEnd)) && changed.ends_with(one.substr(one.size() - kEnd));
    copies += changed.size() < 3 * one.size() && has_copy(one, changed, kLongerThanOtherRuns);
  }
  CHECK(heads > kMutations / 50);
  CHECK(tails > kMutations / 50);
  CHECK(copies > kMutations / 100);
}

TEST_CASE("The same seed makes the same mutations", "[unit][fuzz]") {
  for (uint64_t seed = 0; seed < 100; ++seed)
    CHECK(Mutator(seed)(numbers(0), numbers(500)) == Mutator(seed)(numbers(0), numbers(500)));
}

}  // namespace
}  // namespace bert::testing
