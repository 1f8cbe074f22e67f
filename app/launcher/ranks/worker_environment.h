// What a rank is told: its environment, equal to torchrun's, and its command.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/launcher/settings/options.h"

namespace bert {

/// The place that a round of the rendezvous gave this node.
struct Assignment {
  int64_t round = 0;
  int64_t group_rank = 0, group_world_size = 1;  // of nodes
  int64_t first_rank = 0, world_size = 1;        // of ranks
  int64_t first_role_rank = 0, role_world_size = 1;
  int64_t restart_count = 0;
  bool operator==(const Assignment&) const = default;
};

/// Where the ranks find their store.
struct StoreAddress {
  std::string host = "127.0.0.1";
  int64_t port = 0;
  bool agent_store = true;         // the launcher holds it; else rank 0 does (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1)
  std::string local_address = {};  // of this node on the network of the job; "" where the job has no other node
};

/// The variables that torchrun sets for the rank, and BERTRUN_LOCAL_ADDRESS where there is one. `error_file` may be "" (no log directory).
std::map<std::string, std::string> worker_environment(const LaunchConfig& config, const Assignment& assignment,
                                                      const StoreAddress& store, int64_t local_rank,
                                                      const std::string& error_file);

/// The command with ${local_rank} replaced in its arguments.
std::vector<std::string> worker_command(const LaunchConfig& config, int64_t local_rank);

/// Prefix of a teed line of the rank.
std::string log_prefix(const LaunchConfig& config, const Assignment& assignment, int64_t local_rank);

}  // namespace bert
