// Checks that all ranks of a run do the same work, before the first step. Otherwise they would train wrongly, or fail
// with an unrelated error.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"

namespace bert {

/// Returns `group` if all its ranks call it with the same configuration; num_threads, distributed.init_method and the
/// names of the data files may differ. Throws ConfigError on every rank, with the ranks, the keys and the values;
/// PeerError on every rank if a rank does not come and does not respond for the timeout of the configuration.
ProcessGroupPtr expect_same_config(ProcessGroupPtr group, const PretrainConfig& config);

/// The same for the contents of the shards, by their keys in `data`.
void expect_same_data(const ProcessGroupPtr& group, const std::map<std::string, DataIdentity>& data,
                      int64_t timeout_seconds);

}  // namespace bert
