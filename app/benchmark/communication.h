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

/// Every rank calls it. Medians of: bytes (of all gradients), one_ms and ms_median (of one c10d all_reduce of this size
/// and of DataParallel's reduction, in turns), their gb_per_second, bandwidth_fraction (of the all_reduce's, reached by
/// DataParallel's); of training steps step_ms, exposed_ms (time of a step that it waits for the reduction after its
/// backward, including the wait for slower ranks) and exposed_share (exposed_ms as a share of the step, 0 to 1).
nlohmann::ordered_json benchmark_communication(const CommunicationBenchmarkOptions& options,
                                               const ProcessGroupPtr& group);

}  // namespace bert
