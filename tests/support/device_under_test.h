// The device of tests tagged [cuda]. Without a GPU they skip. With BERT_TEST_DEVICE=cuda they fail if there is none.
#pragma once

#include <c10/core/Device.h>
#include <torch/cuda.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "tests/testing.h"

namespace bert::testing {

inline std::optional<c10::Device> device_under_test() {
  const char* variable = std::getenv("BERT_TEST_DEVICE");
  const bool must_be_there = variable != nullptr && std::string(variable) == "cuda";
  if (must_be_there || torch::cuda::is_available()) return c10::Device(c10::kCUDA, 0);
  return std::nullopt;
}

}  // namespace bert::testing

// Declares `device`, or skips the test.
#define BERT_DEVICE_OR_SKIP(device)                                            \
  const std::optional<c10::Device> found = bert::testing::device_under_test(); \
  if (!found) BERT_SKIP("there is no GPU with CUDA to test on");               \
  [[maybe_unused]] const c10::Device device = *found
