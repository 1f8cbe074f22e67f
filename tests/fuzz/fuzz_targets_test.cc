#include "tests/fuzz/targets/fuzz_targets.h"

#include <iostream>

#include "data/io/error.h"
#include "tests/fuzz/mutator.h"
#include "tests/testing.h"

namespace bert::testing {
namespace {

TEST_CASE("Fuzz targets accept their seeds and survive damaged ones", "[unit][fuzz]") {
  constexpr int kMutations = 200;
  for (const FuzzTarget& target : fuzz_targets()) {
    CAPTURE(target.name);
    REQUIRE(!target.seeds.empty());
    Mutator mutate(1);
    for (const std::string& seed : target.seeds) {
      for (int i = 0; i < kMutations; ++i) {
        const std::string bytes = i == 0 ? seed : mutate(seed);
        CAPTURE(bytes);
        try {
          target.read(bytes);
        } catch (const DataError&) {
          // The reader's answer to bad bytes.
        }
      }
    }
    SUCCEED();
  }
}

TEST_CASE("A fuzz target reports a wrong result", "[unit][fuzz]") {
  CHECK_NOTHROW(require(true, "right"));
  CHECK_THROWS_WITH(require(false, "a place is outside of the text"), "a place is outside of the text");
}

}  // namespace
}  // namespace bert::testing
