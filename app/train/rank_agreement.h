// Checks that all ranks of a run do the same work, before the first step. Otherwise they would train wrongly, or fail
// with an unrelated error.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/checkpoint/state.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"

namespace bert {

/// Meets the other ranks: init_process_group() with the settings of the run.
ProcessGroupPtr join(const RunConfig& config, c10::Device device);

/// Returns if all ranks of `group` call it with the same configuration; num_threads, distributed.init_method and the
/// names of the data files may differ. Throws ConfigError on every rank, with the ranks, the keys and the values;
/// PeerError on every rank if a rank does not come and does not respond for the timeout of the configuration.
void expect_same_config(const ProcessGroupPtr& group, const PretrainConfig& config);

/// The same for a configuration as JSON of any kind. `compare` gives the differences of this rank's configuration from
/// another's, whose JSON it gets; it leaves out those of paths.
void expect_same_config(const ProcessGroupPtr& group, const std::string& json, int64_t timeout_seconds,
                        const std::function<std::vector<ConfigDifference>(const std::string& other)>& compare);

/// The same for the contents of the shards, by their keys in `data`.
void expect_same_data(const ProcessGroupPtr& group, const std::map<std::string, DataIdentity>& data,
                      int64_t timeout_seconds);

}  // namespace bert
