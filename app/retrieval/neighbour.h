#pragma once

#include <cstdint>

namespace bert {

/// A vector's place among those that were searched, and its similarity to the query.
struct Neighbour {
  int64_t place = 0;
  float score = 0;
};

}  // namespace bert
