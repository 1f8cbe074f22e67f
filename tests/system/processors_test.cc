// The processors of made-up machines.
#include "app/system/machine/processors.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "data/io/error.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

TEST_CASE("cgroups' quotas of both versions are read, of every one on the way to the root", "[unit]") {
  struct Machine {
    std::string name, cgroup;                                // cgroup: content of /proc/self/cgroup
    std::vector<std::pair<std::string, std::string>> files;  // files below /sys/fs/cgroup
    double processors;
  };
  const std::vector<Machine> machines = {
      {"no cgroups", "", {}, INFINITY},
      {"version 2", "0::/job\n", {{"job/cpu.max", "150000 100000"}}, 1.5},
      {"version 2 without a quota", "0::/job\n", {{"job/cpu.max", "max 100000"}}, INFINITY},
      {"version 2, in a container's root", "0::/\n", {{"cpu.max", "50000 100000"}}, 0.5},
      {"version 2, the tightest is in the middle",
       "0::/a/b/c\n",
       {{"a/cpu.max", "800000 100000"}, {"a/b/cpu.max", "300000 100000"}, {"a/b/c/cpu.max", "max 100000"}},
       3},
      {"version 2, a neighbour's does not count", "0::/a\n", {{"b/cpu.max", "100000 100000"}}, INFINITY},
      {"version 1",
       "5:memory:/job\n4:cpu,cpuacct:/job\n",
       {{"cpu,cpuacct/job/cpu.cfs_quota_us", "250000"}, {"cpu,cpuacct/job/cpu.cfs_period_us", "100000"}},
       2.5},
      {"version 1 without a quota",
       "4:cpu:/job\n",
       {{"cpu/job/cpu.cfs_quota_us", "-1"}, {"cpu/job/cpu.cfs_period_us", "100000"}},
       INFINITY},
      {"version 1, nested",
       "4:cpu,cpuacct:/job/step\n",
       {{"cpu,cpuacct/job/cpu.cfs_quota_us", "400000"},
        {"cpu,cpuacct/job/cpu.cfs_period_us", "100000"},
        {"cpu,cpuacct/job/step/cpu.cfs_quota_us", "-1"},
        {"cpu,cpuacct/job/step/cpu.cfs_period_us", "100000"}},
       4},
      {"version 1, in a container that sees its own directory as the root and its path from outside",
       "4:cpu,cpuacct:/docker/0123\n",
       {{"cpu,cpuacct/cpu.cfs_quota_us", "200000"}, {"cpu,cpuacct/cpu.cfs_period_us", "100000"}},
       2},
      {"version 1, the directory names the controllers in another order",
       "4:cpuacct,cpu:/job\n",
       {{"cpu/job/cpu.cfs_quota_us", "100000"}, {"cpu/job/cpu.cfs_period_us", "50000"}},
       2},
      {"version 1, of another controller",
       "4:cpuset:/job\n",
       {{"cpuset/job/cpu.cfs_quota_us", "100000"}, {"cpuset/job/cpu.cfs_period_us", "100000"}},
       INFINITY},
      {"both, with the processors under version 1",
       "4:cpu:/job\n0::/other\n",
       {{"cpu/job/cpu.cfs_quota_us", "300000"}, {"cpu/job/cpu.cfs_period_us", "100000"}},
       3},
      {"what is no quota", "0::/job\nnonsense\n", {{"job/cpu.max", "many"}}, INFINITY},
  };
  for (const Machine& machine : machines) {
    CAPTURE(machine.name);
    const TemporaryDirectory directory;
    const auto write = [&](const std::string& name, const std::string& text) {
      std::filesystem::create_directories(std::filesystem::path(directory.path(name)).parent_path());
      std::ofstream(directory.path(name)) << text << "\n";
    };
    if (!machine.cgroup.empty()) write("proc/self/cgroup", machine.cgroup);
    for (const auto& [name, text] : machine.files) write("sys/fs/cgroup/" + name, text);
    CHECK(cgroup_processors(directory.path()) == machine.processors);
    // The affinity mask may allow fewer. A fraction of a processor counts as one.
    const int64_t usable = usable_processors(directory.path());
    const auto allowed = static_cast<double>(machine_topology().allowed.size());
    CHECK(static_cast<double>(usable) == std::min(allowed, std::ceil(machine.processors)));
  }
}

TEST_CASE("ranks are bound to processors of a made-up machine", "[unit]") {
  // Two sockets with two NUMA nodes each. A node has 4 cores of 2 threads (n and n + 16) and two caches. GPU i is on
  // node 3 - i.
  const TemporaryDirectory directory;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(directory.path(name)).parent_path());
    std::ofstream(directory.path(name)) << text << "\n";
  };
  MachineTopology machine;
  machine.sysfs = directory.path();
  for (int node = 0; node < 4; ++node) {
    const std::string first = std::to_string(4 * node), last = std::to_string(4 * node + 3);
    write("devices/system/node/node" + std::to_string(node) + "/cpulist",
          first + "-" + last + "," + std::to_string(4 * node + 16) + "-" + std::to_string(4 * node + 19));
    write("bus/pci/devices/0000:0" + std::to_string(node) + ":00.0/numa_node", std::to_string(3 - node));
    machine.bus_ids.push_back("0000:0" + std::to_string(node) + ":00.0");
  }
  for (int thread = 0; thread < 32; ++thread) {
    const int core = thread % 16, pair = core / 2 * 2;
    const std::string own = "devices/system/cpu/cpu" + std::to_string(thread);
    write(own + "/topology/thread_siblings_list", std::to_string(core) + "," + std::to_string(core + 16));
    write(own + "/topology/physical_package_id", std::to_string(core / 8));
    write(own + "/cache/index0/type", "Instruction");
    write(own + "/cache/index0/level", "9");
    write(own + "/cache/index1/type", "Unified");
    write(own + "/cache/index1/level", "3");
    write(own + "/cache/index1/shared_cpu_list", std::to_string(pair) + "-" + std::to_string(pair + 1) + "," +
                                                     std::to_string(pair + 16) + "-" + std::to_string(pair + 17));
    machine.allowed.insert(thread);
  }
  using Set = std::set<int>;
  CHECK(processors_of_rank(machine, "node", 0, 4) == Set{12, 13, 14, 15, 28, 29, 30, 31});
  CHECK(processors_of_rank(machine, "socket", 3, 4) == Set{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23});
  CHECK(processors_of_rank(machine, "exclusive", 1, 4) == processors_of_rank(machine, "node", 1, 4));
  CHECK(processors_of_rank(machine, "core-complex", 2, 4) == Set{4, 5, 20, 21});
  CHECK_THROWS_WITH(processors_of_rank(machine, "node", 4, 5), bert::testing::Contains("has no GPU"));
  // Two GPUs on node 3 share its cores.
  write("bus/pci/devices/0000:01:00.0/numa_node", "3");
  CHECK(processors_of_rank(machine, "exclusive", 0, 4) == Set{12, 13, 28, 29});
  CHECK(processors_of_rank(machine, "exclusive", 1, 4) == Set{14, 15, 30, 31});
  CHECK(processors_of_rank(machine, "core-complex", 1, 4) == Set{14, 15, 30, 31});
  // Without GPUs the ranks are spread over the nodes. With more ranks than cores, a rank gets no processor.
  machine.bus_ids.clear();
  CHECK(processors_of_rank(machine, "node", 7, 8) == Set{12, 13, 14, 15, 28, 29, 30, 31});
  CHECK(processors_of_rank(machine, "exclusive", 7, 8) == Set{14, 15, 30, 31});
  CHECK_THROWS_WITH(processors_of_rank(machine, "exclusive", 31, 32), bert::testing::Contains("no processor is left"));
  // Only the allowed processors of this process are used.
  machine.allowed = {12, 28};
  CHECK(processors_of_rank(machine, "node", 0, 1) == Set{12, 28});
}

TEST_CASE("lists of processors", "[unit]") {
  CHECK(parse_processor_list("0-2,4,6-7") == std::set<int>{0, 1, 2, 4, 6, 7});
  CHECK(parse_processor_list("").empty());
  for (const char* bad : {"x", "1-", "2-1", "1;2", "0-99999999"}) CHECK_THROWS_AS(parse_processor_list(bad), DataError);
}
