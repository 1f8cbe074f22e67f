// A rank's environment, equal to torchrun's, and its command.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/launcher/settings/options.h"

namespace bert {

/// The place of this node in a round of the rendezvous.
struct Assignment {
  int64_t round = 0;
  int64_t group_rank = 0, group_world_size = 1;  // counts nodes
  int64_t first_rank = 0, world_size = 1;        // counts ranks
  int64_t first_role_rank = 0, role_world_size = 1;
  int64_t restart_count = 0;
  bool operator==(const Assignment&) const = default;
};

/// Address of the store for the ranks.
struct StoreAddress {
  std::string host = "127.0.0.1";
  int64_t port = 0;
  std::string local_address = {};  // of this node on the job's network; "" if the job has no other node
};

/// The variables that torchrun sets for the rank, and BERTRUN_LOCAL_ADDRESS if the job has several nodes. `error_file`
/// may be "" (no log directory).
std::map<std::string, std::string> worker_environment(const LaunchConfig& config, const Assignment& assignment,
                                                      const StoreAddress& store, int64_t local_rank,
                                                      const std::string& error_file);

/// The rank's command: ${local_rank} is replaced in the arguments.
std::vector<std::string> worker_command(const LaunchConfig& config, int64_t local_rank);

/// Prefix of the rank's lines on the console under --tee.
std::string log_prefix(const LaunchConfig& config, const Assignment& assignment, int64_t local_rank);

}  // namespace bert
