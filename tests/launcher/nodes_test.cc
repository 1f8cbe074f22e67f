// Several agents on this machine, as on several machines: they meet, end together, and admit nobody else.
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "app/launcher/settings/job_token.h"
#include "app/net/socket.h"
#include "app/system/exit_codes.h"
#include "tests/places.h"
#include "tests/support/launcher_testing.h"
#include "tests/support/lines.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// A runtime directory for tokens, and a free port.
struct Place {
  Place() {
    setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
    const Descriptor listener = listen_on({"127.0.0.1", 0});
    port = std::to_string(port_of(listener.get()));
  }
  ~Place() { unsetenv("XDG_RUNTIME_DIR"); }
  [[nodiscard]] std::string path(const std::string& name) const { return directory.path(name); }
  TemporaryDirectory directory;
  std::string port;
};

std::vector<std::string> c10d(const Place& place, std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(),
                 {"--rdzv-backend", "c10d", "--rdzv-id", "job", "--rdzv-endpoint", "localhost:" + place.port});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

std::vector<std::string> node(const Place& place, int rank, std::vector<std::string> options,
                              const std::string& script) {
  options.insert(options.begin(), {"--node-rank", std::to_string(rank), "--master-port", place.port});
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

std::set<std::string> lines_of(const std::string& path) { return lines_in<std::set<std::string>>(std::ifstream(path)); }

/// True if the process blocks SIGTERM but not every signal. A bertrun blocks SIGTERM from its beginning; it blocks all
/// signals only while it forks.
bool blocks_sigterm(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("SigBlk:")) continue;
    const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
    const auto has = [&](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
    return has(SIGTERM) && !has(SIGSEGV);
  }
  return false;
}

}  // namespace

TEST_CASE("two agents with torchrun's options alone make one job", "[unit][distributed]") {
  const Place place;
  const std::string script =
      "echo $RANK/$WORLD_SIZE $LOCAL_RANK $GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_RANK/$ROLE_WORLD_SIZE $MASTER_ADDR "
      "$BERTRUN_LOCAL_ADDRESS >>" +
      place.path("ranks") + "; test -z \"$BERTRUN_TOKEN\"";
  Launcher first(c10d(place, {"--nnodes", "2", "--nproc-per-node", "2", "--role", "a"}, script));
  Launcher second(c10d(place, {"--nnodes", "2", "--nproc-per-node", "1", "--role", "b"}, script));
  const int codes[] = {first.wait(), second.wait()};
  CAPTURE(first.err(), second.err());
  CHECK(codes[0] == 0);
  CHECK(codes[1] == 0);
  // Sorted by process id, as under torchrun. The node that was started first has the lower one.
  CHECK(lines_of(place.path("ranks")) == std::set<std::string>{"0/3 0 0/2 0/2 127.0.0.1 127.0.0.1",
                                                               "1/3 1 0/2 1/2 127.0.0.1 127.0.0.1",
                                                               "2/3 0 1/2 0/1 127.0.0.1 127.0.0.1"});
}

TEST_CASE("static: machine 1 may come before machine 0", "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $RANK >>" + place.path("ranks");
  Launcher second(node(place, 1, {"--nnodes", "2"}, script));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  Launcher first(node(place, 0, {"--nnodes", "2"}, script));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(lines_of(place.path("ranks")) == std::set<std::string>{"0", "1"});
}

TEST_CASE("a rank that dies ends all nodes with its code, named on each", "[unit][distributed]") {
  const Place place;
  const std::string script = "test $RANK = 1 && { sleep 0.2; kill -9 $$; }; exec sleep 60";
  Launcher first(node(place, 0, {"--nnodes", "2"}, script)), second(node(place, 1, {"--nnodes", "2"}, script));
  CHECK(first.wait() == 128 + 9);
  CHECK(second.wait() == 128 + 9);
  CHECK(first.err().find("rank 1 (local rank 0, ") != std::string::npos);
  CHECK(second.err().find("killed by signal 9 (SIGKILL)") != std::string::npos);
}

TEST_CASE("all nodes restart together", "[unit][distributed]") {
  const Place place;
  const std::string script =
      "echo $RANK/$TORCHELASTIC_RESTART_COUNT >>" + place.path("ranks") +
      "; test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; test $RANK = 1 && { sleep 0.2; exit 3; }; exec sleep 60";
  const std::vector<std::string> options = {"--nnodes", "2", "--max-restarts", "1"};
  Launcher first(c10d(place, options, script)), second(c10d(place, options, script));
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(lines_of(place.path("ranks")) == std::set<std::string>{"0/0", "1/0", "0/1", "1/1"});
}

TEST_CASE("an elastic job takes in a node that comes later, and goes on without one that is killed",
          "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $RANK/$WORLD_SIZE/$TORCHELASTIC_RESTART_COUNT >>" + place.path("ranks") +
                             "; test $TORCHELASTIC_RESTART_COUNT = 1 && exit 0; exec sleep 60";
  const std::vector<std::string> options = {"--nnodes", "1:2",         "--max-restarts",
                                            "1",        "--rdzv-conf", "last_call_timeout=1"};
  Launcher first(c10d(place, options, script));
  const auto has = [&](const std::string& line) { return lines_of(place.path("ranks")).contains(line); };
  REQUIRE(eventually([&] { return has("0/1/0"); }));
  Launcher second(c10d(place, options, script));
  REQUIRE(eventually([&] { return has("0/2/0") && has("1/2/0"); }));
  second.signal(SIGKILL);
  CHECK(first.wait() == 0);
  CHECK(has("0/1/1"));
  CHECK(first.err().find("lost ") != std::string::npos);
}

TEST_CASE("an elastic job goes on without a node that gets a signal", "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $RANK/$WORLD_SIZE >>" + place.path("ranks") + "; test $WORLD_SIZE = 1 -a -e " +
                             place.path("signalled") + " && exit 0; trap 'exit 75' TERM; while :; do sleep 0.05; done";
  const std::vector<std::string> options = {"--nnodes", "1:2", "--rdzv-conf", "last_call_timeout=1"};
  Launcher host(c10d(place, options, script));
  const auto has = [&](const std::string& line) { return lines_of(place.path("ranks")).contains(line); };
  REQUIRE(eventually([&] { return has("0/1"); }));
  Launcher other(c10d(place, options, script));
  REQUIRE(eventually([&] { return has("0/2") && has("1/2"); }));
  std::ofstream(place.path("signalled")).flush();
  other.signal(SIGTERM);
  CHECK(other.wait() == kPreempted);
  CHECK(other.err().find("this node leaves the job, which goes on") != std::string::npos);
  CHECK(host.wait() == 0);
  CHECK(host.err().find("it leaves the job, and the ranks of the others start again") != std::string::npos);
}

TEST_CASE("a signal to one agent reaches all ranks, and their 75 comes back on all nodes", "[unit][distributed]") {
  const Place place;
  const std::string script =
      "trap 'exit 75' TERM; echo $RANK >>" + place.path("ranks") + "; while :; do sleep 0.05; done";
  Launcher first(c10d(place, {"--nnodes", "2"}, script)), second(c10d(place, {"--nnodes", "2"}, script));
  REQUIRE(eventually([&] { return lines_of(place.path("ranks")).size() == 2; }));
  second.signal(SIGTERM);
  CHECK(first.wait() == kPreempted);
  CHECK(second.wait() == kPreempted);
}

TEST_CASE("all nodes have one exit code when the ranks of one of them save", "[unit][distributed]") {
  const Place place;
  const std::string script =
      "test $RANK = 0 && trap 'exit 75' TERM; echo $RANK >>" + place.path("ranks") + "; while :; do sleep 0.05; done";
  Launcher first(c10d(place, {"--nnodes", "2"}, script)), second(c10d(place, {"--nnodes", "2"}, script));
  REQUIRE(eventually([&] { return lines_of(place.path("ranks")).size() == 2; }));
  second.signal(SIGTERM);
  CHECK(first.wait() == kPreempted);
  CHECK(second.wait() == kPreempted);
}

TEST_CASE("a signal while nodes meet ends them with 75", "[unit][distributed]") {
  const std::string reason = "nothing is lost, run again";
  for (const int rank : {0, 1}) {  // the host, and a node that has not reached it
    CAPTURE(rank);
    const Place place;
    Launcher alone(node(place, rank, {"--nnodes", "2"}, "exit 0"));
    REQUIRE(eventually([&] { return blocks_sigterm(alone.pid()); }));
    alone.signal(SIGTERM);
    CHECK(alone.wait() == kPreempted);
    CHECK(alone.err().find("signal 15 (SIGTERM) on ") != std::string::npos);
    CHECK(alone.err().find(reason) != std::string::npos);
  }
  const Place place;
  Launcher host(node(place, 0, {"--nnodes", "3"}, "exit 0")), other(node(place, 1, {"--nnodes", "3"}, "exit 0"));
  REQUIRE(eventually([&] { return host.err().find("2 of 3 nodes have joined") != std::string::npos; }));
  other.signal(SIGTERM);
  CHECK(other.wait() == kPreempted);
  CHECK(host.wait() == kPreempted);
  for (const Launcher* each : {&host, &other}) CHECK(each->err().find(reason) != std::string::npos);
}

TEST_CASE("ranks that are to save go on without the host, and say what their node's exit code is",
          "[unit][distributed]") {
  const auto path = [](const Place& place, const char* name) { return place.path(name) + "1"; };
  // The signal reaches the node while the host hangs, or comes from the host, which then dies.
  for (const bool by_host : {false, true}) {
    for (const int code : {kPreempted, kPeerFailure}) {
      CAPTURE(by_host, code);
      const Place place;
      Launcher first(node(place, 0, {"--nnodes", "2"}, "touch " + place.path("up") + "0; exec sleep 60"));
      Launcher second(node(place, 1, {"--nnodes", "2"},
                           "trap 'touch " + place.path("heard") + "1; until [ -e " + place.path("go") +
                               " ]; do sleep 0.01; done; exit " + std::to_string(code) + "' TERM; touch " +
                               place.path("up") + "1; while :; do sleep 0.05; done"));
      const auto exists = [](const std::string& file) { return std::filesystem::exists(file); };
      REQUIRE(eventually([&] { return exists(place.path("up") + "0") && exists(path(place, "up")); }));
      if (by_host) {
        first.signal(SIGTERM);
      } else {
        first.signal(SIGSTOP);
        second.signal(SIGTERM);
      }
      REQUIRE(eventually([&] { return exists(path(place, "heard")); }));
      first.signal(SIGKILL);
      REQUIRE(eventually([&] { return second.err().find("lost the host of the job at ") != std::string::npos; }));
      // Ranks have time to save: this wait is longer than the grace after a failure.
      std::this_thread::sleep_for(std::chrono::milliseconds(1000));
      CHECK_FALSE(second.ended());
      std::ofstream(place.path("go")).flush();
      CHECK(second.wait() == code);
      CAPTURE(second.err());
      CHECK(second.err().find("signal 15 (SIGTERM) on ") != std::string::npos);
      CHECK(second.err().find("what the ranks here say is this node's exit code") != std::string::npos);
      CHECK((second.err().find("it was to save") != std::string::npos) == (code == kPeerFailure));
    }
  }
}

TEST_CASE("a rank's 75 counts though the host is gone before it answers", "[unit][distributed]") {
  const Place place;
  const std::string up = "touch " + place.path("up") + "$RANK; ";
  Launcher first(node(place, 0, {"--nnodes", "2"}, up + "exec sleep 60"));
  Launcher second(node(place, 1, {"--nnodes", "2", "--nproc-per-node", "2", "--log-dir", place.path("logs")},
                       up + "until [ -e " + place.path("go") +
                           " ]; do sleep 0.01; done; test $LOCAL_RANK = 0 && exit 75; "
                           "trap '' TERM; sleep 1.5; exit 75"));
  for (const char* rank : {"0", "1", "2"}) {
    REQUIRE(eventually([&] { return std::filesystem::exists(place.path("up") + rank); }));
  }
  first.signal(SIGSTOP);
  std::ofstream(place.path("go")).flush();
  // The line is written at once, before the host learns of it.
  REQUIRE(eventually([&] {
    return std::filesystem::exists(place.path("logs")) && !only_file(place.path("logs"), "0/error.json").empty();
  }));
  first.signal(SIGKILL);
  CHECK(second.wait() == kPreempted);
  CHECK(second.err().find("lost the host of the job at ") != std::string::npos);
  CHECK(second.err().find("a rank here was preempted") != std::string::npos);
}

TEST_CASE("a node whose rank cannot save decides for all nodes", "[unit][distributed]") {
  const Place place;
  const std::string script = "test $RANK = 1 && { sleep 0.2; exit 75; }; sleep 1; exit 74";
  Launcher first(node(place, 0, {"--nnodes", "2"}, script)), second(node(place, 1, {"--nnodes", "2"}, script));
  CHECK(first.wait() == kIo);
  CHECK(second.wait() == kIo);
  CHECK(second.err().find("preempted with a checkpoint saved") != std::string::npos);
  CHECK(first.err().find("failed with exit code 74") != std::string::npos);
}

TEST_CASE("a second signal ends a host that waits for another node", "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $$ >>" + place.path("pids") + "; exec sleep 60";
  Launcher first(node(place, 0, {"--nnodes", "2"}, script)), second(node(place, 1, {"--nnodes", "2"}, script));
  REQUIRE(eventually([&] { return pids_in(place.path("pids")).size() == 2; }));
  second.signal(SIGSTOP);
  first.signal(SIGTERM);
  const std::vector<pid_t> pids = pids_in(place.path("pids"));
  REQUIRE(eventually([&] { return std::ranges::any_of(pids, [](pid_t pid) { return !alive(pid); }); }));
  CHECK_FALSE(first.ended());
  wait_for_another_wish();
  first.signal(SIGTERM);
  CHECK(eventually([&] { return first.ended(); }));
  CHECK(first.wait() == 128 + SIGTERM);
  second.signal(SIGCONT);
}

TEST_CASE("the end of the host ends the others", "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $$ >>" + place.path("pids") + "; exec sleep 60";
  Launcher first(node(place, 0, {"--nnodes", "2"}, script)), second(node(place, 1, {"--nnodes", "2"}, script));
  REQUIRE(eventually([&] { return pids_in(place.path("pids")).size() == 2; }));
  const std::vector<pid_t> pids = pids_in(place.path("pids"));
  first.signal(SIGKILL);
  CHECK(second.wait() == kPeerFailure);
  CHECK(second.err().find("lost the host of the job") != std::string::npos);
  CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
}

TEST_CASE("an agent that stops answering is noticed", "[unit][distributed]") {
  const Place place;
  const std::string script = "echo $$ >>" + place.path("pids") + "; exec sleep 60";
  const std::vector<std::string> options = {"--nnodes", "2", "--rdzv-conf",
                                            "keep_alive_interval=1,keep_alive_max_attempt=1"};
  Launcher first(node(place, 0, options, script)), second(node(place, 1, options, script));
  REQUIRE(eventually([&] { return pids_in(place.path("pids")).size() == 2; }));
  second.signal(SIGSTOP);
  CHECK(first.wait() == kPeerFailure);
  CHECK(first.err().find("lost node 1 on ") != std::string::npos);
  CHECK(first.err().find("silent for 1 s") != std::string::npos);
  second.signal(SIGCONT);
  CHECK(second.wait() == kPeerFailure);
}

TEST_CASE("nodes that do not come are named after join_timeout", "[unit][distributed]") {
  const Place place;
  Launcher alone(node(place, 0, {"--nnodes", "3", "--rdzv-conf", "timeout=1"}, "exit 0"));
  CHECK(alone.wait() == kPeerFailure);
  CHECK(alone.err().find("1 of 3 nodes have joined: node 0 on ") != std::string::npos);
  CHECK(alone.err().find("missing: --node-rank 1 2 after 1 s;") != std::string::npos);
  Launcher lost(node(place, 1, {"--nnodes", "2", "--rdzv-conf", "timeout=1"}, "exit 0"));
  CHECK(lost.wait() == kPeerFailure);
  CHECK(lost.err().find("no host at 127.0.0.1:" + place.port + " within 1 s") != std::string::npos);
}

TEST_CASE("who may not join is told why", "[unit][distributed]") {
  const Place place;
  const std::string token(64, '5');
  setenv(kTokenVariable, token.c_str(), 1);
  const auto of_three = [&](int rank, std::vector<std::string> options) {
    options.insert(options.begin(), {"--nnodes", "3", "--rdzv-conf", "timeout=60"});
    return node(place, rank, options, "exit 0");
  };
  Launcher host(of_three(0, {}));
  Launcher one(of_three(1, {})), twin(of_three(1, {}));
  REQUIRE(eventually([&] { return one.ended() || twin.ended(); }));
  Launcher& refused = one.ended() ? one : twin;
  Launcher& admitted = one.ended() ? twin : one;
  CHECK(refused.wait() == kPeerFailure);
  CHECK(refused.err().find("--node-rank 1 is taken by node 1 on ") != std::string::npos);
  Launcher other_id(of_three(2, {"--rdzv-id", "other"}));
  CHECK(other_id.wait() == kPeerFailure);
  CHECK(other_id.err().find("--rdzv-id is none here, not other") != std::string::npos);
  Launcher fewer(of_three(1, {"--nnodes", "2"}));
  CHECK(fewer.wait() == kBadConfiguration);
  CHECK(fewer.err().find("--nnodes is 3 on the host and 2 on this node") != std::string::npos);
  setenv(kTokenVariable, std::string(64, '6').c_str(), 1);
  Launcher stranger(of_three(2, {}));  // it does not wait for its timeout of 60 s
  REQUIRE(eventually([&] { return stranger.ended(); }));
  CHECK(stranger.wait() == kRefused);
  CHECK(stranger.err().find("127.0.0.1:" + place.port +
                            ": the host has another token; give all machines the same --rdzv-id and ") !=
        std::string::npos);
  setenv(kTokenVariable, token.c_str(), 1);
  REQUIRE(eventually([&] {  // printed after 3 s
    return host.err().find("2 of 3 nodes have joined: node 0 on ") != std::string::npos;
  }));
  Launcher last(of_three(2, {}));
  unsetenv(kTokenVariable);
  CHECK(last.wait() == 0);
  CHECK(admitted.wait() == 0);
  CHECK(host.wait() == 0);
  CHECK(host.err().find(" wrong token") != std::string::npos);
}

TEST_CASE("a stranger on the host's port, who says no, is not the end of an agent", "[unit][distributed]") {
  const Place place;
  Launcher agent(node(place, 1, {"--nnodes", "2", "--rdzv-conf", "timeout=60"}, "exit 0"));
  {
    // A greeting, and the byte that refuses.
    const Descriptor port = listen_on({"127.0.0.1", std::stoll(place.port)});
    Descriptor peer;
    REQUIRE(eventually([&] {
      if (!peer) peer = Descriptor(accept4(port.get(), nullptr, nullptr, SOCK_CLOEXEC));
      return static_cast<bool>(peer);
    }));
    const std::string lie = "bertrun1" + std::string(32, 'n') + std::string(33, '\0');
    REQUIRE(send(peer.get(), lie.data(), lie.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(lie.size()));
    char byte = 0;
    while (recv(peer.get(), &byte, 1, 0) > 0) {
    }
  }
  Launcher host(node(place, 0, {"--nnodes", "2"}, "exit 0"));
  CHECK(agent.wait() == 0);
  CHECK(host.wait() == 0);
}

TEST_CASE("on a network a job without a token is refused, with the way to make one", "[unit]") {
  const std::string here = "192.0.2.1:7";  // TEST-NET-1 of RFC 5737
  Launcher launcher({"--nnodes", "2", "--rdzv-endpoint", here, "--node-rank", "1", "sh", "-c", "exit 0"});
  CHECK(launcher.wait() == kRefused);
  CHECK(launcher.err().find("openssl rand -hex 32") != std::string::npos);
}

TEST_CASE("a port that is taken is named with its owner", "[unit]") {
  const Place place;
  Descriptor taken = listen_on({"127.0.0.1", std::stoll(place.port)});
  // Only this process holds the port.
  Launcher launcher(node(place, 0, {"--nnodes", "2"}, "exit 0"), [&] { taken.reset(); });
  CHECK(launcher.wait() == kIo);
  CAPTURE(launcher.err());
  CHECK(launcher.err().find("by pid " + std::to_string(getpid())) != std::string::npos);
  CHECK(launcher.err().find("its own --node-rank, or all of them --rdzv-backend c10d") != std::string::npos);
}

TEST_CASE("the token is in no command line and no environment of a rank", "[unit][distributed]") {
  const Place place;
  const std::string token = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";
  setenv(kTokenVariable, token.c_str(), 1);
  // Starts the executable with the token in its environment, and looks at the environments of bertrun, its guard and
  // its ranks.
  const std::string script =
      "for p in $PPID $(cat /proc/$PPID/task/$PPID/children); do cat /proc/$p/environ "
      "/proc/$p/cmdline >>" +
      place.path("seen") + "$RANK; done";
  std::vector<pid_t> agents;
  for (const int rank : {0, 1}) {
    std::vector<std::string> arguments = node(place, rank, {"--nnodes", "2"}, script);
    arguments.insert(arguments.begin(), BERTRUN_EXECUTABLE);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    agents.push_back(fork());
    if (agents.back() == 0) {
      dup2(creat(place.path("err" + std::to_string(rank)).c_str(), 0600), STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  unsetenv(kTokenVariable);
  for (const pid_t agent : agents) {
    int status = 0;
    waitpid(agent, &status, 0);
    CHECK(status == 0);
  }
  for (const char* name : {"seen0", "seen1"}) {
    CAPTURE(name);
    const std::string seen = read_file(place.path(name));
    CHECK(seen.find("bertrun") != std::string::npos);
    CHECK(seen.find("RANK=") != std::string::npos);
    CHECK(seen.find("PATH=") != std::string::npos);
    CHECK(seen.find(token) == std::string::npos);
  }
  CHECK((read_file(place.path("err0")) + read_file(place.path("err1"))).find(token) == std::string::npos);
}
