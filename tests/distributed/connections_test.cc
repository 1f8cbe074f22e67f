// The connections of a process group: when they are made, how many they are, and the descriptors that they need.
#include <sys/resource.h>

#include <filesystem>
#include <functional>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "app/distributed/store_waits.h"
#include "app/net/socket.h"
#include "app/system/errors.h"
#include "tests/support/group_testing.h"
#include "tests/support/rank_processes.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::codes;
using bert::testing::Contains;
using bert::testing::group_beside;
using bert::testing::numbers;
using bert::testing::run_ranks;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::variable;
using Catch::Matchers::StartsWith;

const TestProgram kConnectsLate("a rank that connects late", [] {
  const ProcessGroupPtr job = init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
  const auto store = [&](const char* group) { return c10::make_intrusive<c10d::PrefixStore>(group, store_of(job)); };
  const auto late = store("late"), never = store("never");
  if (get_rank(job) == 0) {
    const ProcessGroupPtr group = group_beside(job, "late", {.timeout_seconds = 60});
    CHECK(missing_at(*late, "connected", 2).empty());
    try {
      group_beside(job, "never", {.timeout_seconds = 1});
      FAIL("rank 1 has not connected");
    } catch (const PeerError& error) {
      CHECK_THAT(
          std::string(error.what()),
          StartsWith("rank 1 did not come within 1 s: rank 0 has its data connections (Gloo) and waits until ") &&
              Contains("check the logs and machines of those that did not come"));
    }
    barrier(job);
    return;
  }
  // The steps of make_process_group.
  std::vector<c10::intrusive_ptr<c10d::Backend>> backends;
  for (const auto& group : {late, never}) {
    const auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
    options->devices = {c10d::ProcessGroupGloo::createDefaultDevice()};
    backends.push_back(c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", group), 1, 2, options));
    if (group == never) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // rank 0 has all of its connections by now
    join_through_store(*group, {.name = "connected", .rank = 1, .size = 2, .timeout = std::chrono::seconds(60)});
  }
  barrier(job);
});

TEST_CASE("A group is made when every rank has its connections, or names those that do not get there",
          "[distributed]") {
  const TemporaryDirectory directory;
  CHECK(run_ranks(kConnectsLate, 2, {{"INIT", "file://" + directory.path("store")}}) == codes(2));
}

namespace {

int64_t open_sockets() {
  int64_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    count += std::filesystem::read_symlink(entry.path(), closed).string().starts_with("socket:");
  }
  return count;
}

}  // namespace

const TestProgram kCountsConnections("a rank that counts its connections", [] {
  const ProcessGroupPtr job = init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
  const int size = get_world_size(job);
  int groups = 0;
  const auto connections = [&](bool on_demand, const std::function<void(const ProcessGroupPtr&)>& use) {
    barrier(job);
    const int64_t before = open_sockets();
    const ProcessGroupPtr group =
        group_beside(job, "group " + std::to_string(++groups), {.timeout_seconds = 20, .connect_on_demand = on_demand});
    use(group);
    const int64_t more = open_sockets() - before;
    barrier(job);
    return more;
  };
  constexpr int64_t kStores = 2, kListening = 1;  // those of the monitor; that of Gloo
  const int64_t mesh = connections(false, [](const auto&) {}), unused = connections(true, [](const auto&) {});
  const int64_t used = connections(true, [&](const auto& group) {
    at::Tensor tensor = numbers({1.0 * get_rank(group)});
    all_reduce(group, tensor);
    CHECK(tensor.equal(numbers({0.5 * size * (size - 1)})));
  });
  if (get_rank(job) == 0) return;  // holds the store, to which the others connect
  CHECK(mesh >= size - 1);
  CHECK(unused <= kStores + kListening);
  CHECK(used < size - 1);
});

TEST_CASE("A group that connects on demand has no mesh of connections", "[distributed]") {
  const Descriptor reserved = reserve_port("127.0.0.1");
  CHECK(run_ranks(kCountsConnections, 8, {{"INIT", "tcp://127.0.0.1:" + std::to_string(port_of(reserved.get()))}}) ==
        codes(8));
  const TemporaryDirectory directory;
  CHECK(run_ranks(kCountsConnections, 8, {{"INIT", "file://" + directory.path("store")}}) == codes(8));
}

const TestProgram kHasFewDescriptors("a rank with few descriptors", [] {
  const rlimit few{.rlim_cur = 64, .rlim_max = 400};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const ProcessGroupPtr alone = make_process_group(store, {}, {.timeout_seconds = 60});
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  CHECK(limit.rlim_cur == 400);  // the soft limit follows, up to the hard limit
  try {                          // fails before any rank waits for a connection
    make_process_group(store, {.rank = 3, .size = 1000}, {.timeout_seconds = 60});
    FAIL("400 descriptors are too few");
  } catch (const ConfigError& error) {
    CHECK_THAT(std::string(error.what()),
               StartsWith("rank 3 may open 400 files and needs 1100 for its connections with each of 999 other ranks "
                          "(Gloo): raise the hard limit (ulimit -Hn"));
  }
});

TEST_CASE("The limit on descriptors is raised or named before a mesh is built", "[distributed]") {
  CHECK(run_ranks(kHasFewDescriptors, 1, {}) == codes(1));
}
