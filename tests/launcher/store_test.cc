// bertrun's store with real clients. The ranks are this test program, on one node and behind the relays of several.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "app/net/socket.h"
#include "tests/places.h"
#include "tests/support/test_program.h"
// The last include: it includes Catch2.
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  REQUIRE(value != nullptr);
  return value;
}

int result_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

const TestProgram kAtStore("one rank at bertrun's store", [] {
  REQUIRE(variable("TORCHELASTIC_USE_AGENT_STORE") == "True");
  const int rank = std::stoi(variable("RANK")), size = std::stoi(variable("WORLD_SIZE"));
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(variable("MASTER_PORT")));
  options.timeout = std::chrono::seconds(60);
  options.waitWorkers = false;
  c10d::TCPStore store(variable("MASTER_ADDR"), options);
  const auto key_of = [](int of_rank) { return std::string("value").append(std::to_string(of_rank)); };
  // Larger than the relay's window, so that it needs credit.
  const auto value_of = [](int of_rank) {
    return std::vector<uint8_t>(600'000 + of_rank, static_cast<uint8_t>(of_rank));
  };
  store.set(key_of(rank), value_of(rank));
  for (int other = 0; other < size; ++other) CHECK(store.get(key_of(other)) == value_of(other));
  store.add("ready", 1);
  if (store.add("ready", 0) == size) store.set("all", std::vector<uint8_t>{1});
  CHECK(store.get("all").size() == 1);  // no rank leaves before all have arrived
});

// Rank 1 stores without end; rank 0 must not lose its key.
const TestProgram kGreedyAndModest("a greedy rank and a modest one", [] {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::stoi(variable("MASTER_PORT")));
  options.timeout = std::chrono::seconds(60);
  options.waitWorkers = false;
  c10d::TCPStore store(variable("MASTER_ADDR"), options);
  if (variable("RANK") == "0") {
    store.set("modest", std::vector<uint8_t>{1});
    store.wait({"refused"});
    CHECK(store.get("modest") == std::vector<uint8_t>{1});
    return;
  }
  store.wait({"modest"});
  const std::vector<uint8_t> megabyte(1 << 20);
  int stored = 0;
  try {
    for (; stored < 200; ++stored) {
      store.set("greedy" + std::to_string(stored), megabyte);
      store.getNumKeys();
    }
  } catch (const c10::Error&) {
    // A full store still deletes keys.
    c10d::TCPStore again(variable("MASTER_ADDR"), options);
    again.deleteKey("greedy0");
    again.set("refused", std::vector<uint8_t>{1});
  }
  CHECK(stored >= 60);
  CHECK(stored < 70);
});

namespace {

/// Starts bertrun with ranks that run kAtStore.
pid_t start(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "bertrun");
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  arguments.insert(arguments.end(), {"--log-dir", "/dev/null", "--", self});
  const pid_t pid = fork();
  if (pid != 0) return pid;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
  setenv(TestProgram::kVariable, kAtStore.name, 1);
  execv(BERTRUN_EXECUTABLE, argv.data());
  _exit(127);
}

}  // namespace

TEST_CASE("a rank that fills the store is named, and the others keep theirs", "[distributed]") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  Launcher launcher(
      {"--standalone", "--nproc-per-node", "2", "--log-dir", "/dev/null", "--", self},
      [] { setenv(TestProgram::kVariable, kGreedyAndModest.name, 1); }, BERTRUN_EXECUTABLE);
  CHECK(launcher.wait() == 0);
  CHECK_THAT(launcher.err(), Contains("the store closes a connection of rank 1, pid "));
  CHECK_THAT(launcher.err(), Contains("the limit is 64.1 MiB"));
}

TEST_CASE("ranks meet at bertrun's store on one node", "[distributed]") {
  CHECK(result_of(start({"--standalone", "--nproc-per-node", "3"})) == 0);
  CHECK(result_of(start({"--standalone"})) == 0);
}

TEST_CASE("ranks of three agents meet at bertrun's store", "[distributed]") {
  const TemporaryDirectory directory;
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  const std::string port = std::to_string(port_of(listen_on({"127.0.0.1", 0}).get()));
  std::vector<pid_t> agents;
  for (const char* node : {"2", "0", "1"})
    agents.push_back(start({"--nnodes", "3", "--node-rank", node, "--nproc-per-node", "2", "--master-port", port}));
  for (const pid_t agent : agents) CHECK(result_of(agent) == 0);
  unsetenv("XDG_RUNTIME_DIR");
}
