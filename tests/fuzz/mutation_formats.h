// What the program reads that others may have made, for tests/fuzz/mutations.cc.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/fuzz/mutator.h"

namespace bert::testing {

struct Format {
  std::string name;
  /// Checksums or MACs cover every byte: nothing that was changed may be accepted.
  bool sealed = false;
  /// Reads a copy that was changed, the valid one where there is no mutator. Throws what the program throws on one that
  /// it refuses.
  std::function<void(Mutator*)> read;
};

/// All formats; their files are written into `directory` once, and again at every read.
std::vector<Format> mutation_formats(const std::string& directory);

}  // namespace bert::testing
