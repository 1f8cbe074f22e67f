#include "app/profile/phase_range.h"

#include <torch/csrc/profiler/stubs/base.h>

#include "app/system/error_report.h"

namespace bert {

PhaseRange::PhaseRange(Phase phase)
    : record_(at::RecordScope::USER_SCOPE), nvtx_(torch::profiler::impl::cudaStubs()->enabled()) {
  set_phase(phase);
  if (record_.isActive()) record_.before(name_of(phase));
  if (nvtx_) torch::profiler::impl::cudaStubs()->rangePush(name_of(phase));
}

PhaseRange::~PhaseRange() {
  if (nvtx_) torch::profiler::impl::cudaStubs()->rangePop();
}

}  // namespace bert
