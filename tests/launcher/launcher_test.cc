// bertrun on one node: the environment of ranks, the exit code, and no process that stays behind.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "app/config/pretrain_config.h"
#include "app/launcher/ranks/worker_environment.h"
#include "app/launcher/ranks/worker_group.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/processors.h"
#include "tests/places.h"
#include "tests/support/launcher_testing.h"
#include "tests/support/lines.h"

using namespace bert;
using namespace bert::testing;

TEST_CASE("bertrun gives each rank torchrun's environment", "[unit]") {
  unsetenv("OMP_NUM_THREADS");
  // The variables of torchrun 2.11 with their values. (Error file and port differ from run to run.)
  const TemporaryDirectory directory;
  REQUIRE(
      run({"--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "3", "--rdzv-id", "job7", "--rdzv-backend",
           "c10d", "--rdzv-endpoint", "localhost:0", "--signals-to-handle", "SIGTERM", "--", "sh", "-c",
           "env | grep -v ERROR_FILE >" + directory.path("env") + "$RANK; echo $TORCHELASTIC_ERROR_FILE >" +
               directory.path("error") + "$RANK"}) == 0);
  const auto lines = lines_in<std::set<std::string>>(std::ifstream(directory.path("env1")));
  for (const char* want :
       {"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "GROUP_RANK=0", "GROUP_WORLD_SIZE=1",
        "ROLE_NAME=trainer", "ROLE_RANK=1", "ROLE_WORLD_SIZE=2", "OMP_NUM_THREADS=1", "TORCHELASTIC_RESTART_COUNT=0",
        "TORCHELASTIC_MAX_RESTARTS=3", "TORCHELASTIC_RUN_ID=job7", "TORCHELASTIC_USE_AGENT_STORE=True",
        "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM", "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "MASTER_ADDR=127.0.0.1"}) {
    CAPTURE(want);
    CHECK(lines.contains(want));
  }
  CHECK(read_file(directory.path("error1")).find("/attempt_0/1/error.json") != std::string::npos);
}

TEST_CASE("ranks and role ranks follow from the assignment", "[unit]") {
  LaunchConfig config;
  config.nproc_per_node = 2;
  config.role = "b";
  const Assignment place{.group_rank = 1,
                         .group_world_size = 2,
                         .first_rank = 4,
                         .world_size = 6,
                         .first_role_rank = 1,
                         .role_world_size = 3,
                         .restart_count = 2};
  const auto environment = worker_environment(config, place, {"127.0.0.1", 77}, 1, "");
  CHECK(environment.at("RANK") == "5");
  CHECK(environment.at("ROLE_RANK") == "2");
  CHECK(environment.at("ROLE_WORLD_SIZE") == "3");
  CHECK(environment.at("GROUP_RANK") == "1");
  CHECK(environment.at("GROUP_WORLD_SIZE") == "2");
  CHECK(environment.at("TORCHELASTIC_RESTART_COUNT") == "2");
  CHECK(environment.at("MASTER_PORT") == "77");
  CHECK(environment.at("TORCHELASTIC_ERROR_FILE").empty());
  CHECK_FALSE(environment.contains("BERTRUN_LOCAL_ADDRESS"));
  CHECK(worker_environment(config, place, {"127.0.0.1", 77, "10.0.0.7"}, 1, "").at("BERTRUN_LOCAL_ADDRESS") ==
        "10.0.0.7");
  config.command = {"${local_rank}", "--rank=${local_rank}/$$/${other}"};  // a shell's $$ stays
  CHECK(worker_command(config, 3) == std::vector<std::string>{"${local_rank}", "--rank=3/$$/${other}"});
}

TEST_CASE("--virtual-local-rank gives every rank one GPU as its first", "[unit]") {
  LaunchConfig config;
  config.nproc_per_node = 2;
  config.virtual_local_rank = true;
  unsetenv("CUDA_VISIBLE_DEVICES");
  CHECK(worker_environment(config, {}, {}, 1, "").at("LOCAL_RANK") == "0");
  CHECK(worker_environment(config, {}, {}, 1, "").at("CUDA_VISIBLE_DEVICES") == "1");
  setenv("CUDA_VISIBLE_DEVICES", "4, 6", 1);
  CHECK(worker_environment(config, {}, {}, 1, "").at("CUDA_VISIBLE_DEVICES") == "6");
  CHECK_THROWS_AS(worker_environment(config, {}, {}, 2, ""), UsageError);
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  CHECK(worker_environment(config, {}, {}, 0, "").at("CUDA_VISIBLE_DEVICES").empty());
  CHECK_THROWS_AS(worker_environment(config, {}, {}, 1, ""), UsageError);
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST_CASE("bertrun returns the first failing rank's code, names it, and stops the others", "[unit]") {
  const TemporaryDirectory directory;
  Launcher exits(
      shell({"--nproc-per-node", "3", "--log-dir", directory.path()}, "test $RANK = 1 && exit 65; exec sleep 60"));
  CHECK(exits.wait() == 65);
  CHECK(exits.err().find("rank 1 (local rank 1, host ") != std::string::npos);
  CHECK(exits.err().find("exit code 65") != std::string::npos);
  const auto error = json_of(only_file(directory.path(), "1/error.json"));
  CHECK(error.at("rank") == 1);
  CHECK(error.at("exit_code") == 65);
  CHECK(error.at("signal").is_null());
  CHECK(error.at("message").at("message") == "Exit code 65");
  CHECK(only_file(directory.path(), "0/error.json").empty());
  Launcher killed(shell({"--nproc-per-node", "2", "--log-dir", directory.path("killed")},
                        "test $RANK = 0 && kill -9 $$; exec sleep 60"));
  CHECK(killed.wait() == 128 + 9);
  CHECK(killed.err().find("killed by signal 9 (SIGKILL)") != std::string::npos);
  const auto death = json_of(only_file(directory.path("killed"), "0/error.json"));
  CHECK(death.at("signal") == "SIGKILL");
  CHECK(death.at("message").at("message") ==
        fmt::format("Signal 9 (SIGKILL) received by PID {}", death.at("pid").get<int64_t>()));
}

TEST_CASE("a death by signal is the culprit, not those who fail because of it", "[unit]") {
  // Rank 0 fails as soon as rank 1 dies, like a rank whose connection breaks.
  const TemporaryDirectory directory;
  const std::string pipe = directory.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  Launcher launcher(
      shell({"--nproc-per-node", "2"},
            "if [ $RANK = 1 ]; then exec 3>" + pipe + "; sleep 0.2; kill -9 $$; else cat " + pipe + "; exit 70; fi"));
  const int code = launcher.wait();
  CAPTURE(launcher.err());
  CHECK(code == 128 + 9);
}

TEST_CASE("what a rank wrote about its failure is told", "[unit]") {
  const TemporaryDirectory directory;
  const std::string own = directory.path("own.json");
  setenv("TORCHELASTIC_ERROR_FILE", own.c_str(), 1);  // as if this bertrun ran under another launcher
  Launcher launcher(
      shell({"--log-dir", directory.path("logs")},
            "echo '{\"message\": {\"message\": \"ValueError: no\", \"extraInfo\": {\"timestamp\": \"7\"}}, \"phase\": "
            "\"evaluation\", \"last_collective\": \"all_reduce 12\"}' >$TORCHELASTIC_ERROR_FILE; exit 1"));
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK(launcher.wait() == 1);
  CHECK(launcher.err().find("in phase evaluation, last collective all_reduce 12: ValueError: no") != std::string::npos);
  const auto error = json_of(only_file(directory.path("logs"), "0/error.json"));
  CHECK(error.at("message").at("extraInfo").at("timestamp") == "7");
  CHECK(error.at("phase") == "evaluation");
  CHECK(json_of(own) == error);
}

TEST_CASE("an error file that is no JSON, or has other members, does no harm", "[unit]") {
  for (const char* content : {"", "{", "[]", "{\"message\": 7}", "{\"message\": {\"message\": [1]}, \"phase\": {}}"}) {
    CAPTURE(content);
    Launcher launcher(shell({}, std::string("printf '%s' '") + content + "' >$TORCHELASTIC_ERROR_FILE; exit 9"));
    CHECK(launcher.wait() == 9);
    CHECK(launcher.err().find("failed with exit code 9") != std::string::npos);
  }
  Launcher nested(shell({},
                        "echo '{\"message\": {\"message\": \"E\", \"extraInfo\": {\"phase\": \"save\"}}}' "
                        ">$TORCHELASTIC_ERROR_FILE; kill -9 $$"));
  CHECK(nested.wait() == 128 + 9);
  CHECK(nested.err().find("(SIGKILL), in phase save: E") != std::string::npos);
}

TEST_CASE("bertrun kills a rank that ignores SIGTERM", "[unit]") {
  setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0.3", 1);
  Launcher launcher(
      shell({"--nproc-per-node", "2"}, "test $RANK = 1 && exit 3; trap '' TERM; while :; do sleep 0.1; done"));
  unsetenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  CHECK(launcher.wait() == 3);
}

TEST_CASE("signals reach the ranks: SIGTERM ends the job, SIGUSR1 is theirs, 75 comes back", "[unit]") {
  const TemporaryDirectory directory;
  const auto up = [&] {
    return std::filesystem::exists(directory.path("up0")) && std::filesystem::exists(directory.path("up1"));
  };
  const std::string loop = "touch " + directory.path("up") + "$RANK; while :; do sleep 0.05; done";
  for (const int number : {SIGTERM, SIGINT, SIGUSR1}) {
    CAPTURE(number);
    Launcher saves(shell({"--nproc-per-node", "2", "--max-restarts", "2"}, "trap 'exit 75' TERM INT USR1; " + loop));
    REQUIRE(eventually(up));
    saves.signal(number);
    CHECK(saves.wait() == kPreempted);
    std::filesystem::remove(directory.path("up0"));
    std::filesystem::remove(directory.path("up1"));
  }
  Launcher plain(shell({"--nproc-per-node", "2"}, loop));
  REQUIRE(eventually(up));
  plain.signal(SIGTERM);
  CHECK(plain.wait() == 128 + SIGTERM);
}

TEST_CASE("a second signal ends at once what the first one did not", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(shell({}, "trap '' TERM; touch " + directory.path("up") + "; while :; do sleep 0.05; done"));
  REQUIRE(eventually([&] { return std::filesystem::exists(directory.path("up")); }));
  launcher.signal(SIGTERM);
  wait_for_another_wish();
  launcher.signal(SIGTERM);
  CHECK(launcher.wait() == 128 + SIGTERM);  // the first signal alone would take 30 s
}

TEST_CASE("a signal named in --signals-to-handle ends the job", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(shell({"--signals-to-handle", "SIGUSR2"},
                          "trap 'exit 0' USR2; touch " + directory.path("up") + "; while :; do sleep 0.05; done"));
  REQUIRE(eventually([&] { return std::filesystem::exists(directory.path("up")); }));
  launcher.signal(SIGUSR2);
  CHECK(launcher.wait() == 128 + SIGUSR2);
}

TEST_CASE("--max-restarts restarts all ranks", "[unit]") {
  const TemporaryDirectory directory;
  const std::string note = "echo $RANK >>" + directory.path("attempt") + "$TORCHELASTIC_RESTART_COUNT; ";
  Launcher launcher(shell(
      {"--nproc-per-node", "2", "--max-restarts", "2", "--log-dir", directory.path("logs"), "-r", "1"},
      note + "echo out; test $RANK$TORCHELASTIC_RESTART_COUNT = 02 && exit 0; "
             "test $TORCHELASTIC_RESTART_COUNT = 2 && exit 0; test $RANK = 1 && { sleep 0.2; exit 4; }; sleep 60"));
  CHECK(launcher.wait() == 0);
  for (const char* attempt : {"attempt0", "attempt1", "attempt2"}) {
    CAPTURE(attempt);
    CHECK(read_file(directory.path(attempt)).size() == 4);  // two lines of one digit
  }
  CHECK(launcher.err().find("restarting all ranks (2 of 2)") != std::string::npos);
  CHECK_FALSE(only_file(directory.path("logs"), "attempt_2/1/stdout.log").empty());
  CHECK(run(shell({"--max-restarts", "1"}, "exit 9")) == 9);
}

TEST_CASE("ranks, and what they have started, do not outlive a bertrun that is killed", "[unit]") {
  const TemporaryDirectory directory;
  // Each rank writes its pid, the pid of a child, and the pid of a child in a session of its own.
  Launcher launcher(
      shell({"--nproc-per-node", "2"}, "sleep 61 & a=$!; setsid sleep 62 & b=$!; sleep 0.2; echo $$ $a $b >>" +
                                           directory.path("pids") + "; exec sleep 60"));
  REQUIRE(eventually([&] { return pids_in(directory.path("pids")).size() == 6; }));
  const std::vector<pid_t> pids = pids_in(directory.path("pids"));
  for (const pid_t pid : pids) CHECK(alive(pid));
  launcher.signal(SIGKILL);
  launcher.wait();
  CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
}

TEST_CASE("without log files, and when the guard has died once, nobody outlives a bertrun either", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(shell({"--log-dir", "/dev/null"},
                          "setsid sleep 62 & sleep 0.2; echo $$ $! >" + directory.path("pids") + "; exec sleep 60"));
  REQUIRE(eventually([&] { return pids_in(directory.path("pids")).size() == 2; }));
  const std::vector<pid_t> pids = pids_in(directory.path("pids"));
  const auto guard = [&] {
    const std::string pid = std::to_string(launcher.pid());
    std::ifstream children("/proc/" + pid + "/task/" + pid + "/children");
    for (pid_t child = 0; children >> child;) {
      std::string name;
      std::getline(std::ifstream("/proc/" + std::to_string(child) + "/comm"), name);
      if (name == "bertrun-guard") return child;
    }
    return 0;
  };
  const pid_t first = guard();
  REQUIRE(first != 0);
  kill(first, SIGKILL);
  REQUIRE(eventually([&] { return guard() != first && guard() != 0; }));
  CHECK(launcher.err().find("note: the guard process " + std::to_string(first) + " has died") != std::string::npos);
  launcher.signal(SIGKILL);
  launcher.wait();
  CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
}

TEST_CASE("a bertrun under a bertrun goes with it, with all that it has started", "[unit]") {
  const TemporaryDirectory directory;
  const std::string pids_file = directory.path("pids"), mark_file = directory.path("mark");
  Launcher launcher(shell({}, "echo $BERTRUN_JOB >" + mark_file +
                                  "0; " BERTRUN_EXECUTABLE " --standalone --nproc-per-node 2 sh -c '" +
                                  "setsid sleep 62 & sleep 0.2; echo $BERTRUN_JOB >" + mark_file +
                                  "1; echo $$ $! $PPID >>" + pids_file + "; exec sleep 60'; :"));
  REQUIRE(eventually([&] { return pids_in(pids_file).size() == 6; }));
  const std::vector<pid_t> pids = pids_in(pids_file);
  for (const pid_t pid : pids) CHECK(alive(pid));
  const std::string outer = read_file(mark_file + "0"), inner = read_file(mark_file + "1");
  CHECK(inner.starts_with(outer.substr(0, outer.size() - 1) + "/"));
  launcher.signal(SIGKILL);
  launcher.wait();
  CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
}

TEST_CASE("50 killed launchers leave nobody behind", "[slow]") {
  int with_ranks = 0;
  for (int i = 0; i < 50; ++i) {
    const TemporaryDirectory directory;
    Launcher launcher(
        shell({"--nproc-per-node", "2"}, "sleep 61 & echo $$ $! >>" + directory.path("pids") + "; exec sleep 60"));
    // The kill comes at any time in the first 0.2 s, also while ranks start.
    std::this_thread::sleep_for(std::chrono::milliseconds(4 * i));
    launcher.signal(SIGKILL);
    launcher.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const std::vector<pid_t> pids = pids_in(directory.path("pids"));
    with_ranks += pids.empty() ? 0 : 1;
    CAPTURE(i);
    CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
  }
  CHECK(with_ranks >= 10);  // else the test has shown nothing
}

TEST_CASE("100 deaths of a rank: the others go too, and the dead one is named", "[slow]") {
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    const TemporaryDirectory directory;
    // The ranks ignore SIGTERM, like a rank that waits in a collective.
    Launcher launcher(shell({"--nproc-per-node", "4"},
                            "trap '' TERM; echo $$ >" + directory.path("rank") + "$RANK; while :; do sleep 0.1; done"));
    std::vector<pid_t> pids;
    REQUIRE(eventually([&] {
      pids.clear();
      for (int rank = 0; rank < 4; ++rank) {
        const std::vector<pid_t> own = pids_in(directory.path("rank") + std::to_string(rank));
        pids.insert(pids.end(), own.begin(), own.end());
      }
      return pids.size() == 4;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(7 * i % 100));
    const int signals[] = {SIGKILL, SIGSEGV, SIGABRT};
    const int number = signals[i % 3];
    kill(pids[static_cast<size_t>(i % 4)], number);
    CHECK(eventually([&] { return std::ranges::none_of(pids, alive); }));
    CHECK(launcher.wait() == 128 + number);
    CHECK(launcher.err().find(fmt::format("rank {} (local rank {}, ", i % 4, i % 4)) != std::string::npos);
  }
}

TEST_CASE("what a failed rank has started goes with it", "[unit]") {
  const TemporaryDirectory directory;
  CHECK(run(shell({}, "sleep 61 & setsid sleep 62 & sleep 0.2; echo $! >" + directory.path("pids") + "; exit 5")) == 5);
  const std::vector<pid_t> pids = pids_in(directory.path("pids"));
  REQUIRE(pids.size() == 1);
  CHECK(eventually([&] { return !alive(pids[0]); }));
}

TEST_CASE("logs: files by rank, tee with prefixes, filters", "[unit]") {
  const TemporaryDirectory directory;
  setenv("OMP_NUM_THREADS", "1", 1);  // avoids the note about it
  const std::string script = "echo out $RANK; echo apple $RANK; echo err $RANK >&2; printf end";
  Launcher launcher(shell({"--nproc-per-node", "2", "--role", "r", "--log-dir", directory.path("logs"), "-r", "1:2",
                           "-t", "0:1,1:1", "--local-ranks-filter", "1", "--duplicate-stdout-filters", "apple"},
                          script));
  CHECK(launcher.wait() == 0);
  CHECK(launcher.out() == "[r1]:out 1\n[r1]:apple 1\n[r1]:end");
  CHECK(launcher.err().empty());  // rank 0's output goes nowhere, rank 1's to its file
  CHECK(read_file(only_file(directory.path("logs"), "0/stdout.log")) == "out 0\napple 0\nend");
  CHECK(read_file(only_file(directory.path("logs"), "1/stderr.log")) == "err 1\n");
  CHECK(read_file(only_file(directory.path("logs"), "attempt_0/filtered_stdout.log")) == "[r1]:apple 1\n");
  CHECK(only_file(directory.path("logs"), "attempt_0/filtered_stderr.log").empty());
  // The file of a filter exists even without a matching line or a teed stream, as under torchrun.
  Launcher no_line(shell({"--log-dir", directory.path("empty"), "-t", "1", "--duplicate-stdout-filters", "pear",
                          "--duplicate-stderr-filters", "apple"},
                         script));
  CHECK(no_line.wait() == 0);
  for (const char* name : {"attempt_0/filtered_stdout.log", "attempt_0/filtered_stderr.log"}) {
    CAPTURE(name);
    const std::string file = only_file(directory.path("empty"), name);
    REQUIRE_FALSE(file.empty());
    CHECK(read_file(file).empty());
  }
  // torchrun's names: <rdzv_id>_XXXX below --log-dir, or below a torchelastic_* of the temporary directory.
  std::vector<std::string> options = {"--rdzv-backend",
                                      "c10d",
                                      "--rdzv-endpoint",
                                      "localhost:0",
                                      "--rdzv-id",
                                      "job/7",
                                      "--log-dir",
                                      directory.path("named"),
                                      "--local-addr",
                                      "here",
                                      "--log-line-prefix-template",
                                      "<${rank}@${hostname}>",
                                      "-t",
                                      "3",
                                      "sh",
                                      "-c",
                                      "echo o; echo e >&2"};
  Launcher named(options);
  CHECK(named.wait() == 0);
  CHECK(named.out() == "<0@here>o\n");
  CHECK(named.err() == "<0@here>e\n");
  CHECK(only_file(directory.path("named"), "attempt_0/0/stdout.log").starts_with(directory.path("named") + "/job_7_"));
  options.erase(options.begin() + 6, options.begin() + 8);  // --log-dir
  std::filesystem::create_directory(directory.path("tmp"));
  Launcher unnamed(options, [&] { setenv("TMPDIR", directory.path("tmp").c_str(), 1); });
  CHECK(unnamed.wait() == 0);
  const std::string file = only_file(directory.path("tmp"), "attempt_0/0/stdout.log");
  CHECK(file.starts_with(directory.path("tmp") + "/torchelastic_"));
  CHECK(
      std::filesystem::path(file).parent_path().parent_path().parent_path().filename().string().starts_with("job_7_"));
  Launcher nowhere(shell({"--log-dir", "/dev/null", "-t", "3"}, "echo out; test -z \"$TORCHELASTIC_ERROR_FILE\""));
  CHECK(nowhere.wait() == 0);
  CHECK(nowhere.out() == "out\n");
  unsetenv("OMP_NUM_THREADS");
  Launcher two(shell({"--nproc-per-node", "2"}, "exit 0"));
  CHECK(two.wait() == 0);
  CHECK(two.err().find("OMP_NUM_THREADS is not set") != std::string::npos);
}

TEST_CASE("lines of several ranks on one console are whole, and a line without an end arrives", "[unit]") {
  // All ranks write at the same time, each line in two pieces. A piece is held back for at most two ticks.
  Launcher launcher(
      shell({"--nproc-per-node", "4", "--monitor-interval", "2"},
            "for i in 1 2 3 4 5 6 7 8; do printf 'rank %s ' $RANK; sleep 0.01; printf 'line %s\\n' $i; done"));
  CHECK(launcher.wait() == 0);
  const auto lines = lines_in<std::set<std::string>>(std::istringstream(launcher.out()));
  CHECK(lines.size() == 32);
  for (int rank = 0; rank < 4; ++rank) {
    for (int i = 1; i <= 8; ++i) CHECK(lines.contains(fmt::format("rank {} line {}", rank, i)));
  }
  // Long lines too. A line that is too long to be held back comes in pieces, with one prefix.
  Launcher longs(shell({"--nproc-per-node", "2", "-t", "1"}, "head -c 500000 /dev/zero | tr '\\0' $RANK; echo"));
  CHECK(longs.wait() == 0);
  const std::string first = "[default0]:" + std::string(500'000, '0') + "\n",
                    second = "[default1]:" + std::string(500'000, '1') + "\n";
  CHECK((longs.out() == first + second || longs.out() == second + first));
  Launcher longer(shell({"-t", "1"}, "head -c 3000000 /dev/zero | tr '\\0' x; echo"));
  CHECK(longer.wait() == 0);
  CHECK((longer.out() == "[default0]:" + std::string(3'000'000, 'x') + "\n"));
  Launcher prompt(shell({"--nproc-per-node", "2"}, "printf 'name? '; sleep 60"));
  CHECK(eventually([&] { return prompt.out() == "name? name? "; }));
}

TEST_CASE("what ranks write in their last moment arrives, also much of it", "[unit]") {
  Launcher launcher(shell({"--nproc-per-node", "2"}, "seq 100000; exit 3"));
  CHECK(launcher.wait() == 3);
  CHECK(launcher.out().size() >= 588895);  // all bytes of one rank; the other rank may have been stopped
}

TEST_CASE("a successful job without --log-dir leaves no directory", "[unit]") {
  const TemporaryDirectory directory;
  setenv("TMPDIR", directory.path().c_str(), 1);
  CHECK(run(shell({}, "exit 0")) == 0);
  CHECK(std::filesystem::is_empty(directory.path()));
  CHECK(run(shell({}, "exit 1")) == 1);
  CHECK_FALSE(only_file(directory.path(), "error.json").empty());
  unsetenv("TMPDIR");
}

TEST_CASE("a TMPDIR that cannot be written to is passed over, as Python does", "[unit]") {
  const TemporaryDirectory directory;
  const std::string file = directory.path("file");
  std::ofstream(file).flush();
  for (const std::string& unusable : {directory.path("absent"), file}) {
    CAPTURE(unusable);
    Launcher launcher(shell({}, "exit 1"), [&] {
      setenv("TMPDIR", unusable.c_str(), 1);
      setenv("TEMP", directory.path().c_str(), 1);
    });
    CHECK(launcher.wait() == 1);
    const std::string error = only_file(directory.path(), "error.json");
    CHECK_FALSE(error.empty());
    std::filesystem::remove(error);
  }
}

TEST_CASE("--numa-binding binds every rank to its processors", "[unit]") {
  const MachineTopology machine = machine_topology();
  constexpr int64_t kRanks = 2;
  std::vector<std::set<int>> want;
  try {
    for (int64_t rank = 0; rank < kRanks; ++rank)
      want.push_back(processors_of_rank(machine, "exclusive", rank, kRanks));
  } catch (const ConfigError&) {
    BERT_SKIP("exclusive processors for two ranks: there are fewer, or another number of GPUs");
  }
  CHECK(want[0] != want[1]);
  const TemporaryDirectory directory;
  Launcher launcher(
      shell({"--nproc-per-node", "2", "--numa-binding", "exclusive"},
            "sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status >" + directory.path("rank") + "$RANK"));
  CHECK(launcher.wait() == 0);
  for (size_t rank = 0; rank < want.size(); ++rank) {
    std::string list = read_file(directory.path("rank" + std::to_string(rank)));
    list.resize(list.find_last_not_of('\n') + 1);
    CHECK(parse_processor_list(list) == want[rank]);
  }
}

TEST_CASE("what keeps a rank from starting is named", "[unit]") {
  const TemporaryDirectory directory;
  LaunchConfig config;
  ProcessGuard guard(make_mark());
  WorkerGroup ranks(guard);
  const auto message = [&](const WorkerSpec& spec) {
    try {
      ranks.start(spec, 0);
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  WorkerSpec spec;
  spec.command = {"/bin/true"};
  spec.files.stdout_file = directory.path("absent/out");
  CHECK(message(spec).find("absent/out: cannot be a rank's stdout: No such file") != std::string::npos);
  spec.files.stdout_file = "", spec.files.stderr_file = directory.path();
  CHECK(message(spec).find(directory.path() + ": cannot be a rank's stderr: Is a directory") != std::string::npos);
  spec.files.stderr_file = "", spec.processors = {100'000};
  CHECK(message(spec).find("--numa-binding") != std::string::npos);
  spec.processors = {}, spec.command = {"/bin/no-such-program"};
  CHECK(message(spec).find("/bin/no-such-program: cannot be run: No such file") != std::string::npos);
}

TEST_CASE("a program that cannot be run is named", "[unit]") {
  Launcher launcher({"--max-restarts", "3", "--nproc-per-node", "2", "no-such-program-anywhere"});
  CHECK(launcher.wait() == kInputMissing);
  CHECK(launcher.err().find("no-such-program-anywhere: cannot be run: No such file") != std::string::npos);
  CHECK(launcher.err().find("restarting") == std::string::npos);
}

TEST_CASE("the static port that a job is given is the one that its ranks see, unless it is taken", "[unit]") {
  const TemporaryDirectory directory;
  CHECK(run({"--master-port", "29517", "sh", "-c", "echo $MASTER_ADDR:$MASTER_PORT >" + directory.path("a")}) == 0);
  CHECK(read_file(directory.path("a")) == "127.0.0.1:29517\n");
}
