// The formats of files and frames that others may have made, for tests/fuzz/mutations.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace bert::testing {

struct Format {
  std::string name;
  /// Checksums or MACs cover every byte: every change must be refused.
  bool sealed = false;
  /// Reads a changed copy; without a mutator, the valid one. Throws the same exceptions as the program.
  std::function<void(Mutator*)> read;
};

/// All formats. Their files are written into `directory` once, and again at every read.
std::vector<Format> mutation_formats(const std::string& directory);

}  // namespace bert::testing
