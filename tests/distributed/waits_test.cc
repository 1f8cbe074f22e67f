// Waits of every kind for ranks that do not come.
#include <signal.h>

#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "app/net/socket.h"
#include "app/system/errors.h"
#include "data/io/files.h"
#include "tests/support/group_testing.h"
#include "tests/support/rank_processes.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::broadcast;
using bert::testing::Contains;
using bert::testing::group_beside;
using bert::testing::numbers;
using bert::testing::start_rank;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::variable;
using bert::testing::wait_for;

const TestProgram kWaitsInVain("a rank that waits in vain", [] {
  const ProcessGroupPtr job = init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
  const int rank = get_rank(job);
  const bool missing = rank == 1 || rank == 3;
  const ProcessGroupOptions impatient = {.timeout_seconds = 10};
  using Call = std::function<void(const ProcessGroupPtr&)>;
  const auto tensor = [] { return numbers({1, 2, 3, 4}); };
  const std::map<std::string, Call> waits = {
      {"barrier", [](const auto& group) { barrier(group); }},
      {"broadcast", [&](const auto& group) { broadcast(group, tensor(), get_world_size(group) - 1); }},
      {"AgreedFlag",
       [](const auto& group) {
         AgreedFlag flag(group);
         flag.exchange(false);
         flag.exchange(false);
       }},
      {"debug", [](const auto& group) { barrier(group); }},
  };
  std::map<std::string, ProcessGroupPtr> groups;
  for (const auto& [name, wait] : waits) {
    ProcessGroupOptions options = impatient;
    options.debug = name == "debug";
    groups[name] = group_beside(job, name, options);
  }
  // All waits run at once: each has a group of its own.
  nlohmann::json messages;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (const auto& [name, wait] : waits) {
    if (missing) continue;
    threads.emplace_back([&, name = name, wait = wait] {
      try {
        wait(groups[name]);
      } catch (const PeerError& error) {
        const std::lock_guard lock(mutex);
        messages[name] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  barrier(job);
  if (missing) raise(SIGSTOP);  // the test kills this process
  try {
    wait_for_rank(job, 3, "checkpoint", 1);
  } catch (const PeerError& error) {
    messages["wait_for_rank"] = error.what();
  }
  std::ofstream(variable("OUT") + std::to_string(rank)) << messages;
});

TEST_CASE("Every wait ends at its timeout with the ranks that are missing and what to check", "[distributed]") {
  const TemporaryDirectory directory;
  const Descriptor reserved = reserve_port("127.0.0.1");
  std::vector<pid_t> pids;
  for (int rank = 0; rank < 4; ++rank) {
    pids.push_back(
        start_rank(kWaitsInVain, rank, 4,
                   {{"INIT", "tcp://127.0.0.1:" + std::to_string(port_of(reserved.get()))},
                    {"OUT", directory.path("messages-")},
                    {"TORCH_FR_BUFFER_SIZE", "0"}}));  // LibTorch's flight recorder is not safe for several threads
  }
  for (const int rank : {0, 2}) CHECK(wait_for(pids[static_cast<size_t>(rank)]) == 0);
  for (const int rank : {1, 3}) {
    kill(pids[static_cast<size_t>(rank)], SIGKILL);
    wait_for(pids[static_cast<size_t>(rank)]);
  }
  struct Expected {
    std::string wait;
    std::vector<std::string> parts;
  };
  const std::string missing = "ranks 1 and 3 are not in the collective, but busy elsewhere: collective ";
  const std::string places = "\n  rank 1: phase starting, last issued ";
  const std::string advice = "Check those ranks' logs and machines; distributed.timeout_seconds is how long";
  const std::vector<Expected> cases = {
      {"barrier", {missing + "1 (barrier) failed on rank ", places, advice}},
      {"broadcast", {missing + "1 (broadcast of Double [4], root 3) failed on rank ", places, advice}},
      {"AgreedFlag", {missing, "(all_reduce of Long [1], sum) failed on rank ", places, advice}},
      {"debug",
       {"ranks 1 and 3 did not come within 10 s: they have not issued collective 1 (barrier), which rank ",
        " waits in, phase starting"}},
      {"wait_for_rank",
       {"rank 3, for whose checkpoint rank ",
        " waits, has not responded for 1 s (stopped, dead, or cut off): check its log and machine"}},
  };
  for (const int rank : {0, 2}) {
    const auto messages = nlohmann::json::parse(read_file(directory.path("messages-" + std::to_string(rank))));
    for (const Expected& expected : cases) {
      CAPTURE(rank, expected.wait);
      REQUIRE(messages.contains(expected.wait));
      const auto message = messages[expected.wait].get<std::string>();
      for (const std::string& part : expected.parts) CHECK_THAT(message, Contains(part));
      CHECK_THAT(message, Contains("rank " + std::to_string(rank)));
    }
  }
}
