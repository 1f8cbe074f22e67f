#include "app/system/resource_limits.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "data/io/error.h"

namespace bert {
namespace {

/// The most tasks of this process's control group; "" without a limit.
std::string most_tasks_of_group() {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t name = line.find(':'), path = line.find(':', name + 1);
    if (name == std::string::npos || path == std::string::npos) continue;
    const std::string controllers = line.substr(name + 1, path - name - 1);
    if (!controllers.empty() && controllers != "pids") continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    for (const std::string& directory : {root + line.substr(path + 1), root}) {
      std::string most;
      if (std::getline(std::ifstream(directory + "/pids.max"), most)) return most == "max" ? "" : most;
    }
  }
  return "";
}

}  // namespace

std::string resource_limits() {
  std::string text;
  const auto add = [&](int resource, const char* option, const char* what, uint64_t unit) {
    rlimit limit{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    text += fmt::format("{}ulimit {} allows {} {}", text.empty() ? "" : "; ", option, limit.rlim_cur / unit, what);
  };
  constexpr uint64_t kKilobyte = 1024;
  add(RLIMIT_AS, "-v", "KB of address space", kKilobyte);
  add(RLIMIT_DATA, "-d", "KB of data", kKilobyte);
  add(RLIMIT_NPROC, "-u", "processes and threads of this user", 1);
  if (const std::string most = most_tasks_of_group(); !most.empty())
    text += fmt::format("{}pids.max allows {} in this container or unit", text.empty() ? "" : "; ", most);
  if (text.empty()) return "";
  return "Limits: " + text + ". Raise what is too low, or use fewer threads (OMP_NUM_THREADS, --num-threads) or ranks.";
}

void expect_threads(int threads) {
  std::mutex mutex;
  std::condition_variable ended;
  bool end = false;
  std::vector<std::thread> all;
  std::string problem;
  try {
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&] {
        std::unique_lock lock(mutex);
        ended.wait(lock, [&] { return end; });
      });
    }
  } catch (const std::system_error& error) {
    problem =
        fmt::format("the system starts {} threads here, and {} are needed: {}", all.size(), threads, error.what());
  }
  {
    const std::lock_guard lock(mutex);
    end = true;
  }
  ended.notify_all();
  for (std::thread& one : all) one.join();
  if (!problem.empty()) throw ResourceError(problem);
}

}  // namespace bert
