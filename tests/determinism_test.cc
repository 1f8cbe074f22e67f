// What makes a run on CUDA repeatable, as far as it can be seen without a GPU.
#include "app/determinism.h"

#include <ATen/ATen.h>

#include <cstdlib>
#include <set>
#include <string>

#include "tests/testing.h"

namespace bert {
namespace {

TEST_CASE("Deterministic algorithms are asked for on CUDA alone, without filling memory", "[unit]") {
  auto& context = at::globalContext();
  use_deterministic_algorithms(c10::Device(c10::kCPU));
  CHECK_FALSE(context.deterministicAlgorithms());
  use_deterministic_algorithms(c10::Device(c10::kCUDA, 0));
  CHECK(context.deterministicAlgorithms());
  CHECK_FALSE(context.deterministicAlgorithmsWarnOnly());
  CHECK_FALSE(context.deterministicFillUninitializedMemory());
  CHECK(std::string(std::getenv("CUBLAS_WORKSPACE_CONFIG")) == ":4096:8");
  context.setDeterministicAlgorithms(false, false);
}

TEST_CASE("A micro-batch's random numbers depend on the seed and on its first sample, and on nothing before",
          "[unit]") {
  at::Generator generator = at::detail::createCPUGenerator(1);
  std::set<uint64_t> seeds;
  for (const int64_t seed : {0, 1, -1}) {
    for (const int64_t sample : {int64_t{0}, int64_t{1}, int64_t{8}, int64_t{1} << 40}) {
      seed_for_micro_batch(generator, seed, sample);
      seeds.insert(generator.current_seed());
      const at::Tensor first = at::rand({8}, generator);
      seed_for_micro_batch(generator, seed, sample);
      CHECK(at::equal(at::rand({8}, generator), first));
    }
  }
  CHECK(seeds.size() == 12);
}

}  // namespace
}  // namespace bert
