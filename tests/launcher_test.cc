// bertrun's local behaviour: what ranks are told, whose exit code comes back, that nobody is left behind.
#include "app/launcher.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "app/exit_codes.h"
#include "data/error.h"
#include "data/files.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

namespace {

/// Runs launch() in a process of its own, so that signal masks and children stay out of the tests; returns its exit
/// code.
int launch_in_child(const LaunchConfig& config) {
  const pid_t pid = fork();
  if (pid == 0) _exit(guarded("bertrun", [&] { return launch(config); }));
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

LaunchConfig shell(int64_t ranks, const std::string& script) {
  LaunchConfig config;
  config.nproc_per_node = ranks;
  config.standalone = true;
  config.command = {"sh", "-c", script};
  return config;
}

bool parse(std::vector<std::string> arguments, LaunchConfig& config) {
  arguments.insert(arguments.begin(), "bertrun");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  return parse_launch_command(static_cast<int>(argv.size()), argv.data(), config);
}

}  // namespace

TEST_CASE("bertrun gives each rank torchrun's environment", "[unit]") {
  const TemporaryDirectory directory;
  LaunchConfig config =
      shell(2, "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $OMP_NUM_THREADS >" +
                   directory.path("rank") + "$RANK");
  config.standalone = false;
  config.nnodes = 3;
  config.node_rank = 1;
  unsetenv("OMP_NUM_THREADS");
  REQUIRE(launch_in_child(config) == 0);
  CHECK(read_file(directory.path("rank2")) == "2/6 0/2 1 127.0.0.1 1\n");
  CHECK(read_file(directory.path("rank3")) == "3/6 1/2 1 127.0.0.1 1\n");
}

TEST_CASE("bertrun returns the failing rank's code and stops the others", "[unit]") {
  const auto start = std::chrono::steady_clock::now();
  CHECK(launch_in_child(shell(3, "test $RANK = 1 && exit 65; exec sleep 60")) == 65);
  CHECK(launch_in_child(shell(2, "test $RANK = 0 && kill -9 $$; exec sleep 60")) == 128 + 9);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));  // the ranks sleep for 60
}

TEST_CASE("bertrun kills a rank that ignores SIGTERM after the shutdown time", "[unit]") {
  LaunchConfig config = shell(2, "test $RANK = 1 && exit 3; trap '' TERM; while :; do sleep 0.1; done");
  config.shutdown_timeout_seconds = 0.3;
  CHECK(launch_in_child(config) == 3);
}

TEST_CASE("bertrun passes 75 through when ranks save on SIGTERM", "[unit]") {
  const TemporaryDirectory directory;
  const LaunchConfig config =
      shell(2, "trap 'exit 75' TERM; touch " + directory.path("up") + "$RANK; while :; do sleep 0.05; done");
  const pid_t pid = fork();
  if (pid == 0) _exit(launch(config));
  for (int i = 0;
       i < 500 && !(std::filesystem::exists(directory.path("up0")) && std::filesystem::exists(directory.path("up1")));
       ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  kill(pid, SIGTERM);
  int status = 0;
  waitpid(pid, &status, 0);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == kPreempted);
}

TEST_CASE("ranks do not outlive a bertrun that is killed", "[unit]") {
  const TemporaryDirectory directory;
  const LaunchConfig config = shell(1, "echo $$ >" + directory.path("pid.tmp") + "; mv " + directory.path("pid.tmp") +
                                           " " + directory.path("pid") + "; exec sleep 60");
  const pid_t pid = fork();
  if (pid == 0) _exit(launch(config));
  for (int i = 0; i < 500 && !std::filesystem::exists(directory.path("pid")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const pid_t rank = std::stoi(read_file(directory.path("pid")));
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  // The orphan is re-parented; it is gone, or a zombie that nobody has reaped yet.
  const auto alive = [&] {
    try {
      return read_file("/proc/" + std::to_string(rank) + "/stat").find(") Z") == std::string::npos;
    } catch (const std::exception&) {
      return false;
    }
  };
  for (int i = 0; i < 100 && alive(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(alive());
}

TEST_CASE("bertrun's command line", "[unit]") {
  LaunchConfig config;
  REQUIRE(parse({"--nproc_per_node", "2", "--node-rank=1", "--nnodes", "2", "--", "train", "--lr", "1"}, config));
  CHECK(config.nproc_per_node == 2);
  CHECK(config.node_rank == 1);
  CHECK(config.command == std::vector<std::string>{"train", "--lr", "1"});
  LaunchConfig other;
  CHECK_THROWS_AS(parse({"--nproc-per-node", "0", "x"}, other), UsageError);
  CHECK_THROWS_AS(parse({"--nproc-per-node", "2x", "x"}, other), UsageError);
  CHECK_THROWS_AS(parse({"--nnodes", "2", "--node-rank", "2", "x"}, other), UsageError);
  CHECK_THROWS_AS(parse({"--no-such-flag", "x"}, other), UsageError);
  CHECK_THROWS_AS(parse({"--nproc-per-node", "2"}, other), UsageError);
  LaunchConfig absent;
  absent.command = {"no-such-program-anywhere"};
  CHECK(launch_in_child(absent) == kInputMissing);
}
