// An export as LibTorch loads it, to be run.
#pragma once

#include <torch/csrc/jit/serialization/import.h>

#include <istream>

#include "model/torchscript.h"

namespace bert::testing {

/// Reads an archive, in evaluation mode. Fills in the values of the names in `extra_files` that the archive has; other
/// values stay.
inline torch::jit::Module load_torchscript(std::istream& in, ExtraFiles& extra_files) {
  torch::jit::Module module = torch::jit::load(in, torch::kCPU, extra_files);
  module.eval();
  return module;
}

}  // namespace bert::testing
