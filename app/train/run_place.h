// Where one rank of a run computes.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "app/distributed/process_group.h"

namespace bert {

struct RunPlace {
  c10::Device device = c10::kCPU;
  ProcessGroupPtr group = {};  // of the ranks, which have met; nullptr for one process
  int64_t local_size = 1;      // ranks on this machine
};

}  // namespace bert
