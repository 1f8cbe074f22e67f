#include "app/system/machine/memory.h"

#include <fstream>

#include "tests/testing.h"

namespace bert {
namespace {

using testing::TemporaryDirectory;

void put(const TemporaryDirectory& root, const std::string& name, const std::string& text) {
  const std::filesystem::path path = root.path(name);
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("The available memory is the kernel's, within the limits of the cgroups", "[unit][memory]") {
  const TemporaryDirectory root;
  CHECK(available_memory(root.path()) == INT64_MAX);
  put(root, "proc/meminfo", "MemTotal:  4000 kB\nMemAvailable:   3000 kB\n");
  CHECK(available_memory(root.path()) == 3000 * 1024);
  put(root, "proc/self/cgroup", "0::/job/step\n");
  put(root, "sys/fs/cgroup/job/step/memory.max", "max\n");
  put(root, "sys/fs/cgroup/job/step/memory.current", "1000\n");
  CHECK(available_memory(root.path()) == 3000 * 1024);
  put(root, "sys/fs/cgroup/job/memory.max", "100000\n");
  put(root, "sys/fs/cgroup/job/memory.current", "70000\n");
  CHECK(available_memory(root.path()) == 30000);
  put(root, "sys/fs/cgroup/job/memory.stat", "anon 1\nfile 50000\ninactive_file 20000\n");
  CHECK(available_memory(root.path()) == 50000);
  put(root, "sys/fs/cgroup/memory.max", "10\n");
  put(root, "sys/fs/cgroup/memory.current", "30\n");
  CHECK(available_memory(root.path()) == 0);
}

TEST_CASE("Limits of cgroups of version 1 count, too", "[unit][memory]") {
  const TemporaryDirectory root;
  put(root, "proc/meminfo", "MemAvailable: 3000 kB\n");
  put(root, "proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/a\n");
  put(root, "sys/fs/cgroup/memory/a/memory.limit_in_bytes", "5000\n");
  put(root, "sys/fs/cgroup/memory/a/memory.usage_in_bytes", "4000\n");
  put(root, "sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 500\n");
  CHECK(available_memory(root.path()) == 1500);
}

}  // namespace
}  // namespace bert
