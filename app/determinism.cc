#include "app/determinism.h"

#include <ATen/Context.h>

#include <cstdlib>
#include <mutex>

#include "cuda_ext/philox.h"

namespace bert {

void use_deterministic_algorithms(c10::Device device) {
  if (!device.is_cuda()) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // else LibTorch refuses matrix products
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // else every at::empty is filled with NaN
}

void seed_for_micro_batch(at::Generator generator, int64_t seed, int64_t first_sample) {
  const Philox4 words =
      dropout_words(static_cast<uint64_t>(seed), static_cast<uint64_t>(first_sample), kGeneratorSite, 0);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(words.word[0] | static_cast<uint64_t>(words.word[1]) << 32);
}

}  // namespace bert
