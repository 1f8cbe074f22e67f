// Checkpoints of other programs, for tests/fuzz/mutation_formats.cc.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/mutation_formats.h"

namespace bert::testing {

std::vector<Format> foreign_checkpoint_formats(const std::string& directory);

}  // namespace bert::testing
