// Process groups of real processes: collectives, the rendezvous, and messages about missing ranks.
#include "app/distributed/process_group.h"

#include <ATen/ATen.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "app/config/fields.h"
#include "app/distributed/rounds.h"
#include "app/net/socket.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/stop_signals.h"
#include "data/io/files.h"
#include "tests/support/group_testing.h"
#include "tests/support/rank_processes.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::broadcast;
using bert::testing::codes;
using bert::testing::Contains;
using bert::testing::Environment;
using bert::testing::numbers;
using bert::testing::run_ranks;
using bert::testing::start_rank;
using bert::testing::TemporaryDirectory;
using bert::testing::TestProgram;
using bert::testing::variable;
using bert::testing::wait_for;
using Catch::Matchers::StartsWith;

namespace {

bool has_ipv6() { return static_cast<bool>(try_listen_on({"::1", 0})); }

}  // namespace

const TestProgram kDoesEveryCollective("a rank that does every collective", [] {
  const ProcessGroupPtr group =
      init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60, .debug = true});
  const int rank = get_rank(group);
  REQUIRE(get_world_size(group) == 3);
  REQUIRE(rank == std::stoi(variable("RANK")));
  barrier(group);

  at::Tensor tensor = numbers({1.0 * rank, 10.0 * rank});
  all_reduce(group, tensor);
  CHECK(tensor.equal(numbers({3, 30})));
  tensor = numbers({1.0 * rank, -1.0 * rank});
  all_reduce(group, tensor, c10d::ReduceOp::MAX);
  CHECK(tensor.equal(numbers({2, 0})));
  tensor = numbers({1.0 * rank});
  broadcast(group, tensor, 2);
  CHECK(tensor.equal(numbers({2})));
  AgreedFlag flag(group);
  std::vector<bool> answers;
  for (int call = 0; call < 5; ++call) answers.push_back(flag.exchange(rank == 1 && call == 1));
  CHECK(answers == std::vector<bool>{false, false, true, false, false});  // one call late
  CHECK(last_collective().find("all_reduce of Long [1]") == 0);
  // A rank with a heartbeat may take longer than the timeout.
  if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2200));
  wait_for_rank(group, 2, "nap", 1);
  barrier(group);
});

TEST_CASE("Collectives over three processes, wherever they meet", "[distributed]") {
  const TemporaryDirectory directory;
  CHECK(run_ranks(kDoesEveryCollective, 3, {{"INIT", "file://" + directory.path("store")}}) == codes(3));
  const std::string port = std::to_string(20000 + getpid() % 10000);
  CHECK(run_ranks(kDoesEveryCollective, 3, {{"INIT", "env://"}, {"MASTER_PORT", port}}) == codes(3));
  CHECK(run_ranks(kDoesEveryCollective, 3, {{"INIT", "tcp://127.0.0.1:" + port + "?world_size=3"}}) == codes(3));
  if (has_ipv6()) CHECK(run_ranks(kDoesEveryCollective, 3, {{"INIT", "tcp://[::1]:" + port}}) == codes(3));
  // A launcher with a store serves it at MASTER_ADDR and MASTER_PORT, not at the address of tcp://.
  const Environment under_launcher = {
      {"INIT", "tcp://127.0.0.1:" + port}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_PORT", "1"}};
  CHECK(run_ranks(kDoesEveryCollective, 3, under_launcher) == codes(3));
}

const TestProgram kKeepsItsErrors("a rank that keeps what it is told", [] {
  const std::string out = variable("OUT") + variable("RANK");
  REQUIRE(std::freopen(out.c_str(), "w", stderr) != nullptr);
  const ProcessGroupPtr group = init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
  // Rank 1 also plays a stranger: a connection to another loopback address succeeds only if the store listens on all
  // interfaces.
  if (get_rank(group) == 1 && !variable("MASTER_PORT").empty()) {
    const Descriptor stranger = start_connect({"127.0.0.2", std::stoll(variable("MASTER_PORT"))});
    pollfd done{stranger.get(), POLLOUT, 0};
    poll(&done, 1, 10'000);
    std::ofstream(variable("OUT") + "-stranger") << (connection_error(stranger.get()) == 0 ? "connected" : "refused");
  }
  barrier(group);
});

TEST_CASE("Rank 0's store listens on the address that is named, and where nobody authenticates it, rank 0 says so",
          "[distributed]") {
  const TemporaryDirectory directory;
  const std::string port = std::to_string(port_of(reserve_port("127.0.0.1").get()));
  int runs = 0;
  struct Told {
    std::string first, second, stranger;
  };
  const auto run = [&](const Environment& more) {
    const std::string out = directory.path(std::to_string(runs++) + "-");
    Environment environment{{"OUT", out}, {"MASTER_PORT", port}};
    for (const auto& [name, value] : more) environment[name] = value;
    CHECK(run_ranks(kKeepsItsErrors, 2, environment) == codes(2));
    return Told{read_file(out + "0"), read_file(out + "1"), read_file(out + "-stranger")};
  };
  const std::string warning = "bert: warning: the store of the ranks at ";
  const auto warned = [&](const Told& told, const std::string& where, const std::string& how) {
    CHECK_THAT(told.first, Contains(warning + where + " has no authentication, and " + how));
    CHECK(told.first.find(warning) == told.first.rfind(warning));  // once
    CHECK_THAT(told.second, !Contains(warning));
  };
  for (const std::string& method : {std::string("env://"), "tcp://127.0.0.1:" + port}) {
    CAPTURE(method);
    const Told told = run({{"INIT", method}});
    warned(told, "127.0.0.1:" + port, "listens on that address alone");
    CHECK(told.stranger == "refused");
  }
  const Told local = run({{"INIT", "env://"}, {"MASTER_ADDR", "localhost"}});
  warned(local, "localhost:" + port, "listens on that address alone");
  CHECK(local.stranger == "refused");
  if (try_listen_on({host_name(), 0})) {  // if the machine's name has an address
    const Told named = run({{"INIT", "env://"}, {"MASTER_ADDR", host_name()}});
    warned(named, host_name() + ":" + port, "listens on all interfaces");
    CHECK(named.stranger == "connected");
  }
  const Told under_bertrun = run({{"INIT", "env://"}, {"BERTRUN_STATE", "/proc/self/fd/none"}});
  warned(under_bertrun, "127.0.0.1:" + port, "listens on that address alone");  // the store is rank 0's all the same
  CHECK(under_bertrun.stranger == "refused");
  CHECK_THAT(run({{"INIT", "file://" + directory.path("store")}}).first, !Contains(warning));
  // The store of torchrun, in the launcher.
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  const std::string agent_port = std::to_string(store->getPort());
  warned(run({{"INIT", "env://"}, {"MASTER_PORT", agent_port}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
         "127.0.0.1:" + agent_port, "is the launcher's");
  CHECK_THAT(run({{"INIT", "env://"},
                  {"MASTER_PORT", agent_port},
                  {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                  {"BERTRUN_STATE", "/proc/self/fd/none"}})
                 .first,
             !Contains(warning));
}

TEST_CASE("A port that is taken is said by the rank that would listen there, with its owner", "[distributed]") {
  const Descriptor taken = listen_on({"127.0.0.1", 0});
  const std::string port = std::to_string(port_of(taken.get()));
  try {
    init_process_group({.init_method = "tcp://127.0.0.1:" + port, .rank = 0, .world_size = 2, .timeout_seconds = 60});
    FAIL("joined");
  } catch (const PeerError& error) {
    CHECK_THAT(std::string(error.what()), Contains("rank 0 of 2 could not join: cannot listen on 127.0.0.1:" + port) &&
                                              Contains("pid " + std::to_string(getpid())) &&
                                              Contains("name another port (MASTER_PORT"));
  }
}

TEST_CASE("One process is a group without a store", "[distributed]") {
  CHECK(init_process_group({.init_method = "tcp://192.0.2.1:1", .rank = 0, .world_size = 1}) == nullptr);
  at::Tensor tensor = numbers({4});
  barrier(nullptr);
  all_reduce(nullptr, tensor);
  CHECK(tensor.equal(numbers({4})));
  CHECK(get_rank(nullptr) == 0);
  CHECK(get_world_size(nullptr) == 1);
  AgreedFlag flag(nullptr);
  CHECK_FALSE(flag.exchange(false));
  CHECK(flag.exchange(true));
  CHECK_FALSE(flag.exchange(false));
}

TEST_CASE("A group that cannot be is refused", "[distributed]") {
  const auto error = [](const ProcessGroupOptions& options) {
    try {
      init_process_group(options);
    } catch (const ConfigError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  for (const char* method : {"", "env", "tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://host:65536",
                             "tcp://host:12x", "tcp://:12", "file://", "file://relative", "http://host:12"}) {
    CAPTURE(method);
    CHECK_THAT(error({.init_method = method, .rank = 0, .world_size = 2}),
               Contains("expected env://, tcp://HOST:PORT or file:///PATH"));
  }
  for (const char* method : {"env://?ranks=2", "tcp://host:12?rank=x", "file:///a?rank"}) {
    CAPTURE(method);
    CHECK_THAT(error({.init_method = method, .rank = 0, .world_size = 2}), Contains("world_size=N after the ?"));
  }
  CHECK_THAT(error({.init_method = "file:///nowhere/at/all", .rank = 0, .world_size = 2}),
             Contains("/nowhere/at is no directory"));
  const TemporaryDirectory directory;
  CHECK_THAT(error({.rank = 2, .world_size = 2}), Contains("rank 2 of 2"));
  setenv("GLOO_SOCKET_IFNAME", "nowhere0", 1);  // refused before any wait
  CHECK_THAT(error({.init_method = "file://" + directory.path("interface"), .rank = 0, .world_size = 2}),
             Contains("GLOO_SOCKET_IFNAME=nowhere0: no interface nowhere0 is up") && Contains("lo (127.0.0.1)"));
  unsetenv("GLOO_SOCKET_IFNAME");
}

TEST_CASE("A rank that does not come is named", "[distributed]") {
  const TemporaryDirectory directory;
  const auto message = [](const ProcessGroupOptions& options) {
    try {
      init_process_group(options);
    } catch (const PeerError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK_THAT(
      message({.init_method = "file://" + directory.path("store"), .rank = 1, .world_size = 4, .timeout_seconds = 1}),
      Contains("ranks 0, 2 and 3 did not come within 1 s: rank 1 of 4 waited at " + directory.path("store")));
  // A rank that comes but makes no connections.
  const std::string half = directory.path("half");
  const auto other = std::async(std::launch::async, [half] {
    c10d::PrefixStore store("bert", c10::make_intrusive<c10d::FileStore>(half, 2));
    join_round(store, {.rank = 1, .size = 2, .timeout = std::chrono::seconds(60)});
  });
  const std::string unconnected =
      message({.init_method = "file://" + half, .rank = 0, .world_size = 2, .timeout_seconds = 1});
  CHECK_THAT(unconnected,
             Contains("all 2 ranks have come, but rank 0 has no data connections (Gloo), nor have rank 1"));
  CHECK_THAT(unconnected, Contains("GLOO_SOCKET_IFNAME"));
  // No store listens on port 1.
  const std::string unheard =
      message({.init_method = "tcp://127.0.0.1:1", .rank = 1, .world_size = 2, .timeout_seconds = 1});
  CHECK_THAT(unheard, Contains("rank 1 of 2 could not join at 127.0.0.1:1 within 1 s: is rank 0 started"));
  for (const std::string& text : {unconnected, unheard}) {  // nothing of LibTorch's stack
    CHECK_THAT(text, !Contains("frame #") && !Contains("Exception raised"));
  }
}

const TestProgram kAloneAtMeeting("a rank that is alone at the meeting", [] {
  const StopSignals signals;
  const int code = guarded("rank", [] {
    init_process_group({.init_method = variable("INIT"), .timeout_seconds = 60});
    return 0;
  });
  _exit(code);
});

TEST_CASE("A signal while ranks are missing ends the wait with 75", "[distributed]") {
  const TemporaryDirectory directory;
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    CAPTURE(number);
    const std::string store = directory.path("store" + std::to_string(number));
    const auto came = [&] {
      return std::filesystem::exists(store) && read_file(store).find("rounds/1/came") != std::string::npos;
    };
    const pid_t pid = start_rank(kAloneAtMeeting, 0, 2, {{"INIT", "file://" + store}});
    for (int i = 0; i < 500 && !came(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto start = std::chrono::steady_clock::now();
    kill(pid, number);
    CHECK(wait_for(pid) == kPreempted);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));  // not the timeout of 60 s
  }
}

const TestProgram kWaitsForRank1("a rank that waits for rank 1", [] {
  const ProcessGroupPtr group = init_process_group(
      {.init_method = variable("INIT"), .timeout_seconds = 2, .debug = variable("HOW").starts_with("debug")});
  const int rank = get_rank(group);
  barrier(group);
  const std::string how = variable("HOW");
  if (rank == 1 && how == "stopped") raise(SIGSTOP);
  if (rank == 0 && how == "debug holder") raise(SIGSTOP);
  if (rank == 1 && how == "dead") _exit(3);
  if (rank == 1 && how == "busy") {
    set_phase(Phase::kCheckpoint);
    std::this_thread::sleep_for(std::chrono::seconds(6));
    return;
  }
  at::Tensor tensor = at::ones({rank == 1 && how == "debug" ? 5 : 4});
  if (rank == 1 && how == "debug order") broadcast(group, at::ones({2}), 1);
  if (rank == 1 && how == "debug dtype") tensor = tensor.to(at::kDouble);
  const bool other = rank == 1 && (how == "other" || how == "debug kind");
  const auto start = std::chrono::steady_clock::now();
  std::string message;
  const int code = guarded("rank", [&] {
    try {
      other ? broadcast(group, tensor, 0) : all_reduce(group, tensor);
      if (how == "debug order") broadcast(group, at::ones({2}), 1);
    } catch (const std::exception& error) {
      message = error.what();
      throw;
    }
    return 0;
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::ofstream(variable("OUT") + "-" + std::to_string(rank))
      << nlohmann::json({{"code", code}, {"message", message}, {"seconds", seconds}});
});

TEST_CASE("A collective that fails says for whom it waited", "[distributed]") {
  const TemporaryDirectory directory;
  struct Expected {
    std::string how, message;
    int size;
    bool begins = true;  // `message` is the begin of the message, also in the error file
    int missing = 1;
  };
  const Descriptor reserved = reserve_port("127.0.0.1");
  const std::vector<Expected> cases = {
      {"stopped",
       "rank 1 does not respond (stopped, dead, or cut off): collective 2 (all_reduce of Float [4], sum) failed", 3},
      {"dead",
       "rank 1 does not respond (stopped, dead, or cut off): collective 2 (all_reduce of Float [4], sum) failed", 2},
      {"busy",
       "rank 1 is not in the collective, but busy elsewhere: collective 2 (all_reduce of Float [4], sum) failed on "
       "rank "
       "0\n  rank 1: phase checkpoint, last issued collective 1 (barrier)",
       2},
      {"debug",
       "collective 2 differs between ranks: rank 0 issues all_reduce of Float [4], sum, rank 1 issues "
       "all_reduce of Float [5], sum",
       2},
      {"debug dtype",
       "collective 2 differs between ranks: rank 0 issues all_reduce of Float [4], sum, rank 1 issues "
       "all_reduce of Double [4], sum",
       2},
      {"debug order",
       "collective 2 differs between ranks: rank 0 issues all_reduce of Float [4], sum, rank 1 issues "
       "broadcast of Float [2], root 1",
       2},
      {"debug kind",
       "collective 2 differs between ranks: rank 0 issues all_reduce of Float [4], sum, rank 1 issues "
       "broadcast of Float [4], root 0",
       2},
      {"debug holder",
       "collective 2 (all_reduce of Float [4], sum) failed on rank 1: the store does not answer either, so rank 0 or "
       "the launcher, which hold it, is stopped, dead, or cut off; check rank 0's log and machine",
       2, true, 0},
      {"other", ": the ranks do not run the same program or configuration", 2, false},
  };
  for (const Expected& expected : cases) {
    CAPTURE(expected.how);
    const std::string out = directory.path(expected.how);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < expected.size; ++rank) {
      pids.push_back(start_rank(
          kWaitsForRank1, rank, expected.size,
          {{"INIT", expected.how == "debug holder" ? "tcp://127.0.0.1:" + std::to_string(port_of(reserved.get()))
                                                   : "file://" + out + ".store"},
           {"OUT", out},
           {"HOW", expected.how},
           {"TORCHELASTIC_ERROR_FILE", out + "-error-" + std::to_string(rank)}}));
    }
    for (int rank = 0; rank < expected.size; ++rank) {
      if (rank != expected.missing) CHECK(wait_for(pids[static_cast<size_t>(rank)]) == 0);
    }
    const bool stopped = expected.how == "stopped" || expected.how == "debug holder";
    const pid_t missing = pids[static_cast<size_t>(expected.missing)];
    if (stopped) kill(missing, SIGKILL);
    wait_for(missing);
    for (int rank = 0; rank < expected.size; ++rank) {
      if (rank == expected.missing) continue;
      const auto report = nlohmann::json::parse(read_file(out + "-" + std::to_string(rank)));
      CHECK(report["code"] == kPeerFailure);
      const auto message = report["message"].get<std::string>();
      if (expected.begins) {
        CHECK_THAT(message, StartsWith(expected.message));
      } else {
        CHECK_THAT(message, Contains(expected.message));
      }
      if (stopped) {
        CHECK(report["seconds"].get<double>() >= 1.9);
        CHECK(report["seconds"].get<double>() < 2 + 1 + 5);  // timeout, 1 s as promised, and 5 s for a busy machine
        WARN("a collective of 2 s with a stopped rank ended after " << report["seconds"] << " s");
      }
      const auto file = nlohmann::json::parse(read_file(out + "-error-" + std::to_string(rank)));
      CHECK(file["message"]["message"] == "PeerError: " + message);
      CHECK(std::stoll(file["message"]["extraInfo"]["timestamp"].get<std::string>()) > 1'500'000'000);
      CHECK_THAT(file["last_collective"].get<std::string>(), Contains("all_reduce of Float [4], sum"));
      CHECK(file["phase"] == "starting");
      CHECK(file["exit_code"] == kPeerFailure);
    }
  }
}
