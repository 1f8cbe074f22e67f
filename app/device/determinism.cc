#include "app/device/determinism.h"

#include <ATen/Context.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "app/config/pretrain_config.h"
#include "app/system/errors.h"
#include "cuda_ext/scalar/philox.h"

namespace bert {
namespace {

// Note [cuBLAS's workspaces]
// The results of cuBLAS repeat to the bit only if its workspaces have a fixed size, which the variable
// CUBLAS_WORKSPACE_CONFIG sets. LibTorch reads the variable once, at the first matrix product of the process on CUDA.
// If the variable was absent then, LibTorch refuses deterministic products for the rest of the process. That first
// product may precede the call of use_deterministic_algorithms(), so the variable is set when this library is loaded. A
// value that the user has set stays.
constexpr const char* kWorkspaceVariable = "CUBLAS_WORKSPACE_CONFIG";
[[maybe_unused]] const bool kWorkspacesAreFixed = setenv(kWorkspaceVariable, ":4096:8", /*overwrite=*/0) == 0;

void check_workspaces() {
  const char* value = std::getenv(kWorkspaceVariable);
  const std::string found = value == nullptr ? "" : value;
  if (found == ":4096:8" || found == ":16:8") return;
  throw ConfigError(std::string(kWorkspaceVariable) + " is \"" + found +
                    "\"; runs on CUDA repeat to the bit with :4096:8 or :16:8 only. Unset it.");
}

/// Tries a matrix product: LibTorch throws if it read the variable before the variable was set.
void try_product(c10::Device device) {
  const at::Tensor one = at::ones({1, 1}, device);
  try {
    at::mm(one, one);
  } catch (const c10::Error& error) {
    if (std::string(error.what_without_backtrace()).find(kWorkspaceVariable) == std::string::npos) throw;
    throw ConfigError(std::string(kWorkspaceVariable) +
                      " was set after the process's first matrix product on CUDA. Load libbert.so, or set it to " +
                      ":4096:8, before that.");
  }
}

}  // namespace

void use_deterministic_algorithms(c10::Device device) {
  if (!device.is_cuda()) return;
  check_workspaces();
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(
      false);  // otherwise LibTorch fills every at::empty with NaN
  if (at::hasCUDA()) try_product(device);
}

void seed_for_micro_batch(at::Generator generator, int64_t seed, int64_t first_sequence) {
  const Philox4 words =
      dropout_words(static_cast<uint64_t>(seed), static_cast<uint64_t>(first_sequence), kGeneratorSite, 0);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(words.word[0] | static_cast<uint64_t>(words.word[1]) << 32);
}

}  // namespace bert
