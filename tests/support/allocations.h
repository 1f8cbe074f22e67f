// Records the requests of a piece of code to the CPU's allocator on this thread.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace bert::testing {

class Allocations : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*pointer*/, int64_t bytes, size_t /*allocated*/, size_t /*reserved*/,
                         c10::Device /*device*/) override {
    if (bytes > 0) sizes.push_back(bytes);
    live += bytes;
    peak = std::max(peak, live);
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

  std::vector<int64_t> sizes;
  int64_t live = 0, peak = 0;  // bytes, relative to the start
};

/// Runs `body` on this thread and returns its record.
template <class Body>
std::shared_ptr<Allocations> allocations_of(const Body& body) {
  const auto record = std::make_shared<Allocations>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, record);
  body();
  return record;
}

}  // namespace bert::testing
