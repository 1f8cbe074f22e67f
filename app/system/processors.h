// Which processors and GPUs this machine has for us, and which processors a rank is bound to.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace bert {

/// Processors that the cgroups' quotas (version 1 and 2) are worth: the tightest on the way from this process' cgroup to
/// the root of its hierarchy; infinite without one. `root` has /proc and /sys below it; a test may hand in its own.
double cgroup_processors(const std::string& root = "/");

/// Processors that this process may use: its affinity mask, capped by cgroup_processors(root) rounded up, at least 1.
int64_t usable_processors(const std::string& root = "/");

/// PCI addresses ("0000:17:00.0") of the CUDA devices in their order, as CUDA_VISIBLE_DEVICES leaves them. Empty
/// without a driver. The driver is loaded in a child process, so that it stays out of this one.
std::vector<std::string> gpu_bus_ids();

/// What binding depends on, read from /sys; a test may hand in its own.
struct MachineTopology {
  std::string sysfs = "/sys";        // directory with devices/system and bus/pci
  std::set<int> allowed;             // processors of the affinity mask
  std::vector<std::string> bus_ids;  // of the GPUs
};

/// This machine's.
MachineTopology machine_topology();

/// Processors for a rank under --numa-binding: "node" has all of the NUMA node of the rank's GPU, "socket" all of the
/// nodes of its socket, "exclusive" an equal share of the node's cores, "core-complex" one group of cores with a common
/// last-level cache. Without GPUs the ranks are dealt evenly to the NUMA nodes. Throws ConfigError when nothing is
/// left for the rank, or when there are GPUs but none with its number.
/// Source: the modes of torch.numa.binding.
std::set<int> processors_of_rank(const MachineTopology& machine, const std::string& mode, int64_t local_rank,
                                 int64_t local_world_size);

/// "0-2,4,6-7" to numbers. Throws DataError.
std::set<int> parse_processor_list(const std::string& text);

}  // namespace bert
