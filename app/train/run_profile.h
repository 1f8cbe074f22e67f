// The profile of some steps of a run, as its configuration asks (profile.steps).
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

#include "app/config/run_config.h"
#include "app/profile/step_profile.h"

namespace bert {

/// Rank 0 has the steps profiled: trace.json and profile.json in its run directory, and a table for its log. A process
/// that begins within the steps profiles the rest of them, one that begins after them none.
class RunProfile {
 public:
  /// `is_rank_zero`: this is rank 0.
  RunProfile(const RunConfig& config, c10::Device device, bool is_rank_zero);

  /// The next step after `applied` at which begin() or end() has work to do, the same on every rank; `otherwise` if
  /// there is none before it.
  [[nodiscard]] int64_t next_stop(int64_t applied, int64_t otherwise) const;
  /// Call before step `applied` + 1.
  void begin(int64_t applied);
  /// Call after step `applied`; `stopping`: no step follows. Writes the files if the profile ends, and returns what is to
  /// be said about it: the table, or the reason why a file could not be written. `gemm_flops`: measure_gemm().
  std::optional<std::string> end(int64_t applied, bool stopping, double gemm_flops);

 private:
  std::string directory_;
  c10::Device device_;
  bool is_rank_zero_;
  int64_t first_, last_;  // 0: none
  int64_t from_ = 0;      // the first step of profiler_
  std::optional<Profiler> profiler_;
};

}  // namespace bert
