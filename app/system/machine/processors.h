// The processors and GPUs that this machine offers to a process, and the processors that a rank is bound to.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace bert {

/// Number of processors that the cgroup quotas (versions 1 and 2) allow: the tightest quota from this process' cgroup
/// up to the root of its hierarchy; infinite without a quota. `root` contains /proc and /sys; tests pass a directory of
/// their own.
double cgroup_processors(const std::string& root = "/");

/// Number of processors that this process may use: its affinity mask, capped by cgroup_processors(root) rounded up. At
/// least 1.
int64_t usable_processors(const std::string& root = "/");

/// PCI addresses ("0000:17:00.0") of the CUDA devices, in their order, filtered by CUDA_VISIBLE_DEVICES. Empty without
/// a driver. A child process loads the driver, so this process stays without it.
std::vector<std::string> gpu_bus_ids();

/// The facts of a machine that binding depends on. Tests pass a directory of their own in place of /sys.
struct MachineTopology {
  std::string sysfs = "/sys";        // directory with devices/system and bus/pci
  std::set<int> allowed;             // processors of the affinity mask
  std::vector<std::string> bus_ids;  // of the GPUs
};

/// The topology of this machine.
MachineTopology machine_topology();

/// Processors for a rank under --numa-binding.
/// - "node": all processors of the NUMA node of the rank's GPU.
/// - "socket": all processors of the nodes of that node's socket.
/// - "exclusive": an equal share of the node's cores.
/// - "core-complex": one group of cores with a common last-level cache.
///
/// Without GPUs the ranks are spread evenly over the NUMA nodes. Throws ConfigError if no processor is left for the
/// rank, or if there are GPUs but none with the rank's number. Source: the modes of torch.numa.binding.
std::set<int> processors_of_rank(const MachineTopology& machine, const std::string& mode, int64_t local_rank,
                                 int64_t local_world_size);

/// Parses a list such as "0-2,4,6-7". Throws DataError.
std::set<int> parse_processor_list(const std::string& text);

}  // namespace bert
