#include "app/train/determinism.h"

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
// cuBLAS repeats to the bit where its workspaces are of a fixed size, which this variable says. LibTorch looks at it
// once, at the process's first matrix product on CUDA, and refuses deterministic products ever after if it was not
// there. That product may come before anybody asks for a repeatable run, so the variable is set when this library is
// loaded; a value that is there stays.
constexpr const char* kWorkspaceVariable = "CUBLAS_WORKSPACE_CONFIG";
[[maybe_unused]] const bool kWorkspacesAreFixed = setenv(kWorkspaceVariable, ":4096:8", /*overwrite=*/0) == 0;

void check_workspaces() {
  const char* value = std::getenv(kWorkspaceVariable);
  const std::string found = value == nullptr ? "" : value;
  if (found == ":4096:8" || found == ":16:8") return;
  throw ConfigError(std::string(kWorkspaceVariable) + " is \"" + found +
                    "\"; runs on CUDA repeat to the bit with :4096:8 or :16:8 only. Unset it.");
}

/// LibTorch's answer to whether it saw the variable in time.
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
  at::globalContext().setDeterministicFillUninitializedMemory(false);  // else every at::empty is filled with NaN
  if (at::hasCUDA()) try_product(device);
}

void seed_for_micro_batch(at::Generator generator, int64_t seed, int64_t first_sample) {
  const Philox4 words =
      dropout_words(static_cast<uint64_t>(seed), static_cast<uint64_t>(first_sample), kGeneratorSite, 0);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(words.word[0] | static_cast<uint64_t>(words.word[1]) << 32);
}

}  // namespace bert
