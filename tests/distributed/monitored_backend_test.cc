// Calls that a backend like NCCL never finishes, or that fail after they were issued: Note [Deadline of an asynchronous
// call]. Each runs in a process of its own, because the monitor ends the process.
#include "app/distributed/monitored_backend.h"

#include <ATen/ATen.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "app/distributed/group_end.h"
#include "app/distributed/nccl_backend.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/rank_processes.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::Contains;
using bert::testing::FakeNccl;
using bert::testing::start_rank;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::variable;
using bert::testing::wait_for;
using Catch::Matchers::StartsWith;

namespace {

template <class Error>
std::exception_ptr error_of(const std::string& message) {
  return std::make_exception_ptr(Error(c10::SourceLocation{__func__, __FILE__, __LINE__}, message));
}

/// The program of rank 0 in the test below; rank 1 takes no part in it. Returns the exit code, unless the monitor ends
/// the process.
int run_case(const std::string& how, const ProcessGroupPtr& group) {
  if (how == "eager") {
    group->getBackend(at::kCPU)->eagerConnectSingleDevice(c10::Device(at::kCPU, 0));
  } else if (how != "shutdown") {
    all_reduce(group, at::ones({4}));
  }
  if (how == "shutdown") return kOk;
  if (how == "own device") std::this_thread::sleep_for(std::chrono::seconds(2));
  if (how == "own device" || how.starts_with("throw")) throw DataError("row 7 is damaged");
  testing::hang();  // like a host that waits for the device
}

}  // namespace

const TestProgram kOverFakeNccl("a rank over a backend like NCCL", [] {
  const std::string how = variable("HOW");
  const Member member{.rank = std::stoi(variable("RANK")), .size = 2};
  FakeNccl fake;
  fake.forms = how != "first collective" && how != "eager";
  fake.shuts_down = how != "shutdown";
  fake.aborts = how != "throw and hang";
  fake.kills_after_error = how == "asynchronous error";
  if (how == "asynchronous error") fake.error = error_of<c10::DistBackendError>("NCCL error: remote error");
  if (how == "own device") fake.error = error_of<c10::Error>("CUDA error: an illegal memory access");
  const ProcessGroupPtr group = testing::fake_nccl_group(c10::make_intrusive<c10d::FileStore>(variable("STORE"), 2),
                                                         member, std::chrono::seconds(2), fake);
  if (member.rank == 1) testing::hang();
  std::_Exit(guarded("rank", [&] {
    // The group dies with its owner, while the exception is on its way.
    return with_orderly_end(
        group, [&] { return run_case(how, group); }, std::chrono::seconds(1));
  }));
});

TEST_CASE("What hangs or fails in NCCL ends the rank with its cause, in the error file too", "[distributed]") {
  struct Case {
    std::string how;
    int code;
    std::string begins, contains;  // of the message
  };
  const std::string missing = "rank 1 is not in the collective, but busy elsewhere: collective 1 (";
  const std::vector<Case> cases = {
      {"first collective", kPeerFailure, "PeerError: " + missing + "all_reduce of Float [4], sum) failed on rank 0",
       "(timed out)"},
      {"eager", kPeerFailure, "PeerError: " + missing + "forming of the communicator) failed on rank 0", "(timed out)"},
      {"shutdown", kPeerFailure, "PeerError: " + missing + "end of the group) failed on rank 0", "(timed out)"},
      {"asynchronous error", kPeerFailure, "PeerError: " + missing + "all_reduce of Float [4], sum) failed on rank 0",
       "(NCCL error: remote error)"},
      {"own device", kBadData, "DataError: row 7 is damaged", ""},
      {"throw", kBadData, "DataError: row 7 is damaged", ""},
      {"throw and hang", kBadData, "DataError: row 7 is damaged", ""},
  };
  const TemporaryDirectory directory;
  for (const Case& each : cases) {
    CAPTURE(each.how);
    const std::string error = directory.path(each.how + ".json");
    std::vector<pid_t> pids;
    for (const int rank : {0, 1}) {
      pids.push_back(start_rank(kOverFakeNccl, rank, 2,
                                {{"HOW", each.how},
                                 {"STORE", directory.path(each.how)},
                                 {"TORCHELASTIC_ERROR_FILE", rank == 0 ? error : error + "-1"}}));
    }
    CHECK(wait_for(pids[0]) == each.code);
    kill(pids[1], SIGKILL);
    wait_for(pids[1]);
    const auto file = nlohmann::json::parse(read_file(error));
    const auto message = file["message"]["message"].get<std::string>();
    CHECK_THAT(message, StartsWith(each.begins) && Contains(each.contains));
    CHECK(file["exit_code"] == each.code);
  }
}

TEST_CASE("The orderly end of a group shuts its backend down once, and returns the result", "[distributed]") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  FakeNccl fake;
  const ProcessGroupPtr group = testing::fake_nccl_group(store, {}, std::chrono::seconds(60), fake);
  CHECK(with_orderly_end(group, [&] {
          all_reduce(group, at::ones({4}));
          CHECK(*fake.shutdowns == 0);
          return 75;
        }) == 75);
  CHECK(*fake.shutdowns == 1);
  CHECK(with_orderly_end(nullptr, [] { return 3; }) == 3);
  CHECK_THROWS_AS(with_orderly_end(nullptr, []() -> int { throw DataError("damaged"); }), DataError);
}

TEST_CASE("Two ranks with one GPU are refused on every rank, with the numbers of ranks and of GPUs", "[distributed]") {
  struct Place {
    std::string machine, address;
  };
  // The messages of all ranks; "" without an error.
  const auto messages = [](const std::vector<Place>& places) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    std::vector<std::string> result(places.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < places.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const auto& [machine, address] = places[rank];
        try {
          expect_own_gpu(*store, static_cast<int>(rank), static_cast<int>(places.size()),
                         {.machine = machine, .host_name = "node-" + machine, .address = address, .visible = 2});
        } catch (const ConfigError& error) {
          result[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return result;
  };
  CHECK(messages({{"a", "01:00"}, {"a", "02:00"}, {"b", "01:00"}, {"b", "02:00"}}) == std::vector<std::string>(4));
  const auto refused = messages({{"a", "01:00"}, {"a", "02:00"}, {"b", "01:00"}, {"b", "02:00"}, {"b", "02:00"}});
  for (const std::string& message : refused) {
    CHECK(message == refused.front());
    CHECK_THAT(message, StartsWith("ranks 3 and 4 would share the GPU at 02:00 of node-b, where each sees 2 GPUs and 3 "
                                   "ranks run: NCCL needs a GPU for each rank of a machine; start at most as many") ||
                            StartsWith("ranks 4 and 3 would share the GPU at 02:00 of node-b, where each sees 2 GPUs "
                                       "and 3 ranks run: "));
  }
}
