#include "app/system/machine/processors.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::set<int> affinity() {
  // A machine may have more processors than the 1024 of cpu_set_t.
  for (int count = CPU_SETSIZE; count <= 1 << 20; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(count));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(count));
    std::set<int> result;
    if (sched_getaffinity(0, bytes, set) == 0) {
      for (int i = 0; i < count; ++i) {
        if (CPU_ISSET_S(static_cast<size_t>(i), bytes, set)) result.insert(i);
      }
    }
    CPU_FREE(set);
    if (!result.empty()) return result;
  }
  return {0};
}

/// Number of processors that a cgroup's quota allows; infinite without a quota.
double quota_of(const std::filesystem::path& directory) {
  double quota = 0, period = 0;
  std::istringstream unified(first_line(directory / "cpu.max"));  // version 2: "max 100000" or "150000 100000"
  if (unified >> quota >> period && period > 0) return quota / period;
  std::istringstream old_quota(first_line(directory / "cpu.cfs_quota_us"));
  std::istringstream old_period(first_line(directory / "cpu.cfs_period_us"));
  if (old_quota >> quota && old_period >> period && quota > 0 && period > 0) return quota / period;
  return INFINITY;
}

/// The bus ids from libcuda, one per line.
std::string ask_driver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) return "";
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  const auto get_id = reinterpret_cast<int (*)(char*, int, int)>(dlsym(library, "cuDeviceGetPCIBusId"));
  int count = 0;
  if (init == nullptr || get_count == nullptr || get_id == nullptr || init(0) != 0 || get_count(&count) != 0) return "";
  std::string result;
  for (int i = 0; i < count; ++i) {
    std::array<char, 32> id{};  // "0000:17:00.0"
    if (get_id(id.data(), static_cast<int>(id.size()), i) != 0) id[0] = '\0';
    result += std::string(id.data()) + "\n";
  }
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::filesystem::path node_directory(const MachineTopology& machine) {
  return std::filesystem::path(machine.sysfs) / "devices/system/node";
}

std::filesystem::path processor_directory(const MachineTopology& machine, int processor) {
  return std::filesystem::path(machine.sysfs) / "devices/system/cpu" / ("cpu" + std::to_string(processor));
}

/// Allowed processors by NUMA node; a single node 0 if the kernel reports none.
std::map<int, std::set<int>> nodes_of(const MachineTopology& machine) {
  std::map<int, std::set<int>> result;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(node_directory(machine), absent)) {
    const std::string name = entry.path().filename();
    if (name.rfind("node", 0) != 0 || name.size() < 5 || std::isdigit(static_cast<unsigned char>(name[4])) == 0)
      continue;
    for (const int processor : parse_processor_list(first_line(entry.path() / "cpulist"))) {
      if (machine.allowed.contains(processor)) result[std::stoi(name.substr(4))].insert(processor);
    }
  }
  if (result.empty()) result[0] = machine.allowed;
  return result;
}

int node_of_gpu(const MachineTopology& machine, const std::string& bus_id) {
  const std::string text = first_line(std::filesystem::path(machine.sysfs) / "bus/pci/devices" / bus_id / "numa_node");
  return text.empty() ? 0 : std::max(0, std::stoi(text));  // -1: a machine with one node
}

/// Groups processors by the smallest processor that the file in their directory lists.
std::map<int, std::set<int>> groups(const std::set<int>& processors,
                                    const std::function<std::filesystem::path(int)>& file) {
  std::map<int, std::set<int>> result;
  for (const int processor : processors) {
    const std::set<int> together = parse_processor_list(first_line(file(processor)));
    result[together.empty() ? processor : *together.begin()].insert(processor);
  }
  return result;
}

/// Path of shared_cpu_list of the highest-level cache that holds data.
std::filesystem::path last_level_cache(const MachineTopology& machine, int processor) {
  std::filesystem::path result;
  int highest = -1;
  std::error_code absent;
  for (const auto& entry :
       std::filesystem::directory_iterator(processor_directory(machine, processor) / "cache", absent)) {
    const std::string type = first_line(entry.path() / "type"), level = first_line(entry.path() / "level");
    if ((type != "Unified" && type != "Data") || level.empty() || std::stoi(level) <= highest) continue;
    highest = std::stoi(level);
    result = entry.path() / "shared_cpu_list";
  }
  return result;
}

int socket_of(const MachineTopology& machine, int processor) {
  const std::string text = first_line(processor_directory(machine, processor) / "topology/physical_package_id");
  return text.empty() ? 0 : std::stoi(text);
}

}  // namespace

double cgroup_processors(const std::string& root) {
  const std::filesystem::path machine(root);
  double result = INFINITY;
  std::ifstream file(machine / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" or "4:cpu,cpuacct:/path"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    // The directory of several controllers may list them in another order. A link named "cpu" then leads to it.
    std::set<std::string> names = {controllers};
    if (!controllers.empty()) names.insert("cpu");
    for (const std::string& name : names) {
      std::filesystem::path relative = std::filesystem::path(line.substr(second + 1)).relative_path();
      for (;; relative = relative.parent_path()) {
        result = std::min(result, quota_of(machine / "sys/fs/cgroup" / name / relative));
        if (relative.empty()) break;
      }
    }
  }
  return result;
}

int64_t usable_processors(const std::string& root) {
  const auto allowed = static_cast<double>(affinity().size());
  return std::max<int64_t>(1, std::llround(std::ceil(std::min(allowed, cgroup_processors(root)))));
}

std::vector<std::string> gpu_bus_ids() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const pid_t pid = fork();
  if (pid == 0) {
    const std::string text = ask_driver();
    [[maybe_unused]] const ssize_t written = write(ends[1], text.data(), text.size());
    _exit(0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got; (got = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(got));
  close(ends[0]);
  if (pid > 0) waitpid(pid, nullptr, 0);
  std::vector<std::string> result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) result.push_back(line);
  return result;
}

MachineTopology machine_topology() {
  MachineTopology machine;
  machine.allowed = affinity();
  machine.bus_ids = gpu_bus_ids();
  return machine;
}

std::set<int> parse_processor_list(const std::string& text) {
  std::set<int> result;
  std::istringstream items(text);
  for (std::string item; std::getline(items, item, ',');) {
    int first = 0, last = 0;
    const char* const end = item.data() + item.size();
    auto [at, error] = std::from_chars(item.data(), end, first);
    last = first;
    if (error == std::errc() && at != end && *at == '-') {
      const auto second = std::from_chars(at + 1, end, last);
      at = second.ptr, error = second.ec;
    }
    constexpr int kMost = 1 << 20;
    if (error != std::errc() || at != end || last < first || last > kMost)
      throw DataError("list of processors \"" + text + "\": expected numbers and ranges like 0-3,8");
    for (int i = first; i <= last; ++i) result.insert(i);
  }
  return result;
}

std::set<int> processors_of_rank(const MachineTopology& machine, const std::string& mode, int64_t local_rank,
                                 int64_t local_world_size) {
  const std::map<int, std::set<int>> nodes = nodes_of(machine);
  // The NUMA node of each rank: the node of its GPU, or an even share of the nodes.
  const auto gpus = static_cast<int64_t>(machine.bus_ids.size());
  if (gpus > 0 && local_rank >= gpus) {
    throw ConfigError("--numa-binding " + mode + ": local rank " + std::to_string(local_rank) +
                      " has no GPU; there are " + std::to_string(gpus));
  }
  const int64_t places = gpus > 0 ? gpus : local_world_size;
  std::vector<int> node_of_place;
  for (int64_t i = 0; i < places; ++i) {
    const auto share = static_cast<int64_t>(nodes.size()) * i / places;
    node_of_place.push_back(gpus > 0 ? node_of_gpu(machine, machine.bus_ids[static_cast<size_t>(i)])
                                     : std::next(nodes.begin(), share)->first);
  }
  const int node = node_of_place[static_cast<size_t>(local_rank)];
  const auto found = nodes.find(node);
  const std::set<int> of_node = found != nodes.end() ? found->second : std::set<int>{};
  // The number of ranks that share the node, and the place of this rank among them.
  const auto begin = node_of_place.begin();
  const int64_t sharers = std::count(begin, node_of_place.end(), node);
  const int64_t index = std::count(begin, begin + local_rank, node);

  std::set<int> result;
  if (mode == "node") {
    result = of_node;
  } else if (mode == "socket" && !of_node.empty()) {
    const int socket = socket_of(machine, *of_node.begin());
    for (const auto& [other, processors] : nodes) {
      if (socket_of(machine, *processors.begin()) == socket) result.insert(processors.begin(), processors.end());
    }
  } else if (mode == "exclusive") {
    const auto cores = groups(of_node, [&](int processor) {
      return processor_directory(machine, processor) / "topology/thread_siblings_list";
    });
    const auto count = static_cast<int64_t>(cores.size());
    const int64_t each = count / sharers, extra = count % sharers;  // the first ranks get the remainder
    const int64_t first = index * each + std::min(index, extra);
    for (int64_t i = first; i < first + each + (index < extra ? 1 : 0); ++i) {
      const auto& core = std::next(cores.begin(), i)->second;
      result.insert(core.begin(), core.end());
    }
  } else if (mode == "core-complex" && !of_node.empty()) {
    const auto by_cache = groups(of_node, [&](int processor) { return last_level_cache(machine, processor); });
    std::vector<std::set<int>> complexes;
    complexes.reserve(by_cache.size());
    for (const auto& [first, processors] : by_cache) complexes.push_back(processors);
    std::ranges::stable_sort(complexes, [](const auto& a, const auto& b) { return a.size() > b.size(); });
    result = complexes[static_cast<size_t>(index) % complexes.size()];
  }
  if (result.empty()) {
    throw ConfigError("--numa-binding " + mode + ": no processor is left for local rank " + std::to_string(local_rank) +
                      " on NUMA node " + std::to_string(node) + ", which " + std::to_string(sharers) +
                      " ranks share; start fewer ranks, or leave the option out");
  }
  return result;
}

}  // namespace bert
