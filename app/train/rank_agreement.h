// Whether all ranks of a run do the same work: found out before the first step, since they train wrongly otherwise, or
// fail with an error about something else.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"

namespace bert {

/// Returns `group` when all its ranks call it with the same configuration, but for num_threads, distributed.init_method
/// and the names of the data files. Throws ConfigError on every rank, with the ranks, the keys and the values; PeerError
/// on every rank when one has not come and does not respond for the configuration's timeout.
ProcessGroupPtr expect_same_config(ProcessGroupPtr group, const PretrainConfig& config);

/// The same for what is in the shards, by their keys in `data`.
void expect_same_data(const ProcessGroupPtr& group, const std::map<std::string, DataIdentity>& data,
                      int64_t timeout_seconds);

}  // namespace bert
