// Times the reduction of gradients between ranks, alone and under backward.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"

namespace bert {

struct CommunicationBenchmarkOptions {
  PretrainConfig config;  // model, optimizer, precision, device and distributed
  int64_t batch = 8, length = 128, steps = 10, warmup = 3;
  int64_t local_rank = 0;
};

/// Every rank calls it. bytes (of all gradients), one_ms and ms_median (of one c10d all_reduce of so many
/// bytes and of DataParallel's reduction, in turns), their gb_per_second, bandwidth_fraction (of the former that the
/// latter reaches); of training steps step_ms, exposed_ms (what a step waits for the reduction after its backward, a
/// rank's wait for slower ones included) and exposed_share (of the step that it is a part of: 0 to 1). All are medians.
nlohmann::ordered_json benchmark_communication(const CommunicationBenchmarkOptions& options,
                                               const ProcessGroupPtr& group);

}  // namespace bert
