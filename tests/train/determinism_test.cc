// Repeatable runs on CUDA, as far as a machine without a GPU can test them.
#include "app/device/determinism.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <set>
#include <string>

#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("cuBLAS's workspaces are fixed from the start, and a value that would not do is refused", "[unit]") {
  constexpr const char* kVariable = "CUBLAS_WORKSPACE_CONFIG";
  const char* value = std::getenv(kVariable);
  REQUIRE(value != nullptr);  // set when the library was loaded
  const std::string at_start = value;
  CHECK((at_start == ":4096:8" || at_start == ":16:8"));
  const c10::Device cuda(c10::kCUDA, 0);
  setenv(kVariable, ":16:8", 1);
  CHECK_NOTHROW(use_deterministic_algorithms(cuda));
  setenv(kVariable, ":0:0", 1);
  CHECK_THROWS_WITH(use_deterministic_algorithms(cuda),
                    testing::Contains("CUBLAS_WORKSPACE_CONFIG is \":0:0\"") && testing::Contains("Unset it"));
  CHECK_NOTHROW(use_deterministic_algorithms(c10::Device(c10::kCPU)));
  unsetenv(kVariable);
  CHECK_THROWS_WITH(use_deterministic_algorithms(cuda), testing::Contains("CUBLAS_WORKSPACE_CONFIG is \"\""));
  setenv(kVariable, at_start.c_str(), 1);
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("Deterministic algorithms are asked for on CUDA alone, without filling memory", "[unit]") {
  auto& context = at::globalContext();
  use_deterministic_algorithms(c10::Device(c10::kCPU));
  CHECK_FALSE(context.deterministicAlgorithms());
  use_deterministic_algorithms(c10::Device(c10::kCUDA, 0));
  CHECK(context.deterministicAlgorithms());
  CHECK_FALSE(context.deterministicAlgorithmsWarnOnly());
  CHECK_FALSE(context.deterministicFillUninitializedMemory());
  context.setDeterministicAlgorithms(false, false);
}

TEST_CASE("A micro-batch's random numbers depend on the seed and on its first sequence, and on nothing before",
          "[unit]") {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::set<uint64_t> seeds;
  for (const int64_t seed : {0, 1, -1}) {
    for (const int64_t sequence : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{1} << 40}) {
      seed_for_micro_batch(generator, seed, sequence);
      seeds.insert(generator.current_seed());
      const at::Tensor first = at::rand({8}, generator);
      seed_for_micro_batch(generator, seed, sequence);
      CHECK(at::equal(at::rand({8}, generator), first));
    }
  }
  CHECK(seeds.size() == 12);
}

}  // namespace
}  // namespace bert
