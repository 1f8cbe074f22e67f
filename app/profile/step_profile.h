// The time of training steps by phase and operator: LibTorch's profiler around some steps, and a summary of its records.
//
// Note [Attribution of time]
// The profiler records a range for every phase (PhaseRange) and for every call of an operator, with the shapes of its
// inputs. An operator of bert has the time of its whole call; another has the time without the calls inside it. The time
// belongs to the phase in which the call began. What a phase spends outside of operators is `(no operator)`.
// On CUDA an operator's time is that of the kernels that it launched. These run while the host is ahead, so that a phase
// is the time in which the host issued its work. The code for CUDA has not run on a GPU.
//
// An operator's limit is the larger of two times at measured rates: its products at the rate of a square product, and
// its bytes at the rate of a copy. Products are counted for operators that are known to be products, bytes for all: the
// inputs once, and a result as large as the first input. An operator that changes its input, or that makes no tensor,
// has a limit that is off by that much. Data that a cache holds moves faster than a copy, so that an operator can be
// faster than its limit.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

/// Rates that the device reaches, measured in the same process.
struct DeviceLimits {
  double flops_per_second = 0;  // of a square product
  double bytes_per_second = 0;  // of a copy, read and written
};

/// The calls of one operator in one phase.
struct OperatorTime {
  std::string name, phase;
  int64_t calls = 0;
  double self_ms = 0;
  double flops = 0;  // 0: it is no product
  double bytes = 0;  // 0: not known
};

struct ProfileTimes {
  double ms = 0;                           // from the first recorded phase to the end of the last
  std::map<std::string, double> phase_ms;  // by name
  std::vector<OperatorTime> operators;     // the longest first

  /// Adds the times of other steps. The operators of both then stand one after the other.
  void add(ProfileTimes more);
};

/// gemm_tflops and copy_gb_per_second.
nlohmann::ordered_json limits_json(const DeviceLimits& limits);

/// Milliseconds at the limits; 0 if neither products nor bytes are known.
double limit_ms(const OperatorTime& time, const DeviceLimits& limits);

/// Records from its construction on. One at a time in a process. Changes no result.
class Profiler {
 public:
  explicit Profiler(c10::Device device);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the recording. `trace`: the Chrome trace to write, for chrome://tracing and Perfetto; empty: none. Throws
  /// IoError. Called at most once.
  ProfileTimes stop(const std::string& trace);

 private:
  c10::Device device_;
  bool stopped_ = false;
};

/// The contents of profile.json: steps, step_ms, parts with ms, share, and the 20 largest operators with calls, self_ms,
/// share, flops, bytes, limit_ms (null: not known), all of one step on average, and limits. `first` and `last` are the
/// profiled steps. Evaluation and checkpoints in between are parts, but not of step_ms.
nlohmann::ordered_json profile_report(const ProfileTimes& times, const DeviceLimits& limits, int64_t first,
                                      int64_t last);

/// The table of the largest operators of profile_report(), for people.
std::string profile_table(const nlohmann::ordered_json& report);

/// For `bert benchmark step --breakdown`: step_ms of the profiled steps, groups, the longest first, with the fields of an
/// operator in profile_report(), gaps, the five groups with the most time beyond their limits (gap_ms; without a known
/// limit, all of it), and limits. `update_bytes`: what the optimizer reads and writes in a step.
nlohmann::ordered_json breakdown(const ProfileTimes& times, const DeviceLimits& limits, int64_t steps,
                                 int64_t update_bytes);

}  // namespace bert
