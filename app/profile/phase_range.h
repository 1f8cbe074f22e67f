// The phases of a training step as named ranges: in the profile of a run, and in NVIDIA's tools.
#pragma once

#include <ATen/record_function.h>

#include "app/system/phase.h"

namespace bert {

/// Enters a phase (set_phase()), and names the time until its destruction. LibTorch's profiler records the range while it
/// runs. With CUDA the range is one of NVTX, too, which Nsight Systems shows. Without a profiler a range costs less than
/// a microsecond. Ranges of one thread must nest.
class PhaseRange {
 public:
  explicit PhaseRange(Phase phase);
  ~PhaseRange();
  PhaseRange(const PhaseRange&) = delete;
  PhaseRange& operator=(const PhaseRange&) = delete;

 private:
  at::RecordFunction record_;
  bool nvtx_;
};

}  // namespace bert
