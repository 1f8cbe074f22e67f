#include "app/train/run_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/device/device.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {

RunProfile::RunProfile(const RunConfig& config, c10::Device device, bool is_rank_zero)
    : directory_(config.run_directory), device_(device), is_rank_zero_(is_rank_zero) {
  const StepRange steps = config.profile.range().value_or(StepRange{});
  first_ = steps.first;
  last_ = steps.last;
}

int64_t RunProfile::next_stop(int64_t applied, int64_t otherwise) const {
  for (const int64_t stop : {first_ - 1, last_}) {
    if (stop > applied) otherwise = std::min(otherwise, stop);
  }
  return otherwise;
}

void RunProfile::begin(int64_t applied) {
  if (!is_rank_zero_ || profiler_ || last_ == 0 || applied + 1 < first_ || applied >= last_) return;
  from_ = applied + 1;
  profiler_.emplace(device_);
}

std::optional<std::string> RunProfile::end(int64_t applied, bool stopping, double gemm_flops) {
  if (!profiler_ || (applied < last_ && !stopping)) return {};
  try {
    synchronize(device_);
    const ProfileTimes times = profiler_->stop(directory_ + "/trace.json");
    profiler_.reset();
    if (applied < from_) return {};
    const auto report = profile_report(
        times, {.flops_per_second = gemm_flops, .bytes_per_second = measure_copy(device_)}, from_, applied);
    write_file(directory_ + "/profile.json", report.dump(2) + "\n");
    return profile_table(report) + "\nthe profile is in " + directory_ + "/profile.json and trace.json";
  } catch (const IoError& error) {
    profiler_.reset();
    return std::string("the profile is lost: ") + error.what();
  }
}

}  // namespace bert
