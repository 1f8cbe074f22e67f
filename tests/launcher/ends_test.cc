// The end of bertrun's jobs: the exit code, the line that names the culprit, and ranks that save or are suspended.
#include <algorithm>

#include "app/launcher/job/verdict.h"
#include "app/launcher/ranks/failure.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/rank_state.h"
#include "tests/support/launcher_testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

/// A command for a rank's script that waits for a file.
std::string until(const std::string& path) { return "until [ -e " + path + " ]; do sleep 0.01; done; "; }

std::vector<pid_t> children_of(pid_t pid) {
  const std::string name = std::to_string(pid);
  return pids_in("/proc/" + name + "/task/" + name + "/children");
}

bool exists(const std::string& path) { return std::filesystem::exists(path); }

Failure death(int64_t rank, int exit_code, int64_t time) {
  Failure failure;
  failure.rank = rank;
  failure.pid = 7;
  failure.exit_code = exit_code;
  failure.signal = exit_code > 128 ? exit_code - 128 : 0;
  failure.time = time;
  return failure;
}

}  // namespace

TEST_CASE("75 is a job's code when a rank says it and none says otherwise", "[unit]") {
  struct Row {
    int end;
    std::vector<int> codes;
    int result;
    SaveResult said;
  };
  const int term = 128 + SIGTERM, killed = 128 + SIGKILL;
  const std::vector<Row> rows = {
      {kPreempted, {}, 75, {true, 0}},
      {kPreempted, {75, 0, 75}, 75, {true, 0}},
      {kPreempted, {kIo, 75}, kIo, {true, kIo}},
      {kPreempted, {75, kIo, 1}, kIo, {true, kIo}},  // the first failure counts
      {kPreempted, {killed}, killed, {true, killed}},
      {term, {}, term, {}},
      {term, {term, 0}, term, {}},
      {term, {75, term}, 75, {true, 0}},  // a rank that the signal itself has killed had nothing to save
      {term, {75, kIo, term}, kIo, {true, kIo}},
      {term, {killed, 75}, killed, {true, killed}},
      // No rank has saved: the code is the reason that a rank gives; any other end counts as the signal's.
      {term, {kIo}, kIo, {false, kIo}},
      {term, {term, kPeerFailure}, kPeerFailure, {false, kPeerFailure}},
      {term, {1}, term, {false, 1}},
      {term, {killed}, term, {false, killed}},
      // A rank that failed because of others is never the reason, in any order of reports.
      {term, {kPeerFailure, kIo, kPeerFailure}, kIo, {false, kIo}},
      {kPreempted, {kPeerFailure, kIo}, kIo, {true, kIo}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.end, row.codes);
    Verdict verdict(row.end, true), of_job(row.end, true);
    int failures = 0;
    for (const int code : row.codes) failures += verdict.take(code) ? 1 : 0;
    CHECK(verdict.result() == row.result);
    CHECK(verdict.save_result() == row.said);
    const bool consequence_first = row.codes.size() > 1 && row.codes[0] == kPeerFailure;
    CHECK(failures == (row.said.failed == 0 ? 0 : consequence_first ? 2 : 1));
    of_job.take(verdict.save_result());
    CHECK(of_job.result() == row.result);
  }
  Verdict failed(3);  // the end of a failure: ranks that are being stopped do not count
  for (const int code : {75, 74, 137}) CHECK_FALSE(failed.take(code));
  CHECK(failed.result() == 3);
}

TEST_CASE("a rank that cannot save is the job's code, not the 75 of those that could", "[unit]") {
  const TemporaryDirectory directory;
  const std::string saved = directory.path("saved");
  // After the 75 of rank 0: a full disk, and a death by signal.
  for (const auto& [end, code] : {std::pair{"exit 74", 74}, std::pair{"kill -SEGV $$", 128 + SIGSEGV}}) {
    CAPTURE(end);
    Launcher launcher(
        shell({"--nproc-per-node", "2", "--max-restarts", "3", "--log-dir", directory.path("logs")},
              "test $RANK = 0 && { touch " + saved + "; exit 75; }; " + until(saved) + "sleep 0.2; " + end));
    CHECK(launcher.wait() == code);
    CHECK(launcher.err().find("rank 0 (local rank 0, ") != std::string::npos);
    CHECK(launcher.err().find("preempted with a checkpoint saved") != std::string::npos);
    CHECK(launcher.err().find("rank 1 (local rank 1, ") != std::string::npos);
    CHECK(launcher.err().find("; it was to save") != std::string::npos);
    CHECK(json_of(only_file(directory.path("logs"), "1/error.json")).at("exit_code") == code);
    std::filesystem::remove(saved);
    std::filesystem::remove_all(directory.path("logs"));
  }
  // Shortly before the 75, too late to tell the order. The preempted job is not restarted.
  Launcher both(shell({"--nproc-per-node", "2", "--max-restarts", "3"}, "test $RANK = 0 && exit 75; exit 74"));
  CHECK(both.wait() == 74);
  CHECK(both.err().find("restarting") == std::string::npos);
}

TEST_CASE("an error file that cannot be read is kept, and one that is a pipe holds nothing up", "[unit]") {
  const TemporaryDirectory directory;
  Launcher unreadable(shell({"--nproc-per-node", "1", "--log-dir", directory.path("logs")},
                            "echo '{\"loss\": NaN}' >$TORCHELASTIC_ERROR_FILE; exit 9"));
  CHECK(unreadable.wait() == 9);
  CHECK(json_of(only_file(directory.path("logs"), "0/error.json")).at("exit_code") == 9);
  CHECK(read_file(only_file(directory.path("logs"), "0/error.json.unread")) == "{\"loss\": NaN}\n");
  Launcher pipe(shell({"--nproc-per-node", "1"}, "mkfifo $TORCHELASTIC_ERROR_FILE; exit 4"));
  CHECK(pipe.wait() == 4);
}

TEST_CASE("ranks that save after another's 75 have --save-timeout, not the time of a failure", "[unit]") {
  const TemporaryDirectory directory;
  const std::string saves = "test $RANK = 0 && exit 75; sleep 1.5; touch " + directory.path("saved") + "; exit 75";
  setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "0.3", 1);  // torchrun's variable, for failures
  Launcher patient(shell({"--nproc-per-node", "2"}, saves));
  CHECK(patient.wait() == kPreempted);
  CHECK(exists(directory.path("saved")));
  Launcher short_of_time(shell({"--nproc-per-node", "2", "--save-timeout", "0.3"}, saves));
  CHECK(short_of_time.wait() == 128 + SIGKILL);
  CHECK(short_of_time.err().find("rank 1 (local rank 1, ") != std::string::npos);
  CHECK(short_of_time.err().find("it was given 0.3 s; --save-timeout gives more; it was to save") != std::string::npos);
  unsetenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  // The option also sets the time after a signal.
  std::filesystem::remove(directory.path("saved"));
  Launcher told(shell(
      {"--nproc-per-node", "2", "--save-timeout", "0.3"},
      "trap 'test $RANK = 0 && exit 75' TERM; touch " + directory.path("up") + "$RANK; while :; do sleep 0.05; done"));
  REQUIRE(eventually([&] { return exists(directory.path("up0")) && exists(directory.path("up1")); }));
  told.signal(SIGTERM);
  CHECK(told.wait() == 128 + SIGKILL);
}

TEST_CASE("while ranks save, the first signal is not theirs and the second ends them", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(shell({"--nproc-per-node", "2"}, "test $RANK = 0 && exit 75; trap 'touch " +
                                                         directory.path("heard") + "' TERM; touch " +
                                                         directory.path("up") + "; while :; do sleep 0.05; done"));
  REQUIRE(eventually(
      [&] { return exists(directory.path("up")) && launcher.err().find("preempted with") != std::string::npos; }));
  launcher.signal(SIGTERM);
  REQUIRE(eventually([&] { return launcher.err().find("one more signal ends them") != std::string::npos; }));
  CHECK_FALSE(exists(directory.path("heard")));
  wait_for_another_wish();
  launcher.signal(SIGTERM);
  CHECK(launcher.wait() == 128 + SIGKILL);
  CHECK(exists(directory.path("heard")));
}

TEST_CASE("a signal that comes twice within a moment is one wish: the ranks save", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(shell({"--nproc-per-node", "2"}, "trap 'touch " + directory.path("heard") + "$RANK; " +
                                                         until(directory.path("saved")) + "exit 75' TERM; touch " +
                                                         directory.path("up") + "$RANK; while :; do sleep 0.05; done"));
  const auto both = [&](const char* name) {
    return exists(directory.path(name) + "0") && exists(directory.path(name) + "1");
  };
  REQUIRE(eventually([&] { return both("up"); }));
  launcher.signal(SIGTERM);
  REQUIRE(eventually([&] { return both("heard"); }));
  launcher.signal(SIGTERM);
  // As a second request it would kill the ranks before they reach this point.
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  std::ofstream(directory.path("saved")).flush();
  CHECK(launcher.wait() == kPreempted);
}

TEST_CASE("a bertrun whose parent ignores SIGCHLD sees its ranks end", "[unit]") {
  for (const int code : {0, 3}) {
    CAPTURE(code);
    Launcher launcher(shell({"--nproc-per-node", "2"}, "exit " + std::to_string(code)),
                      [] { signal(SIGCHLD, SIG_IGN); });
    REQUIRE(eventually([&] { return launcher.ended(); }));
    CHECK(launcher.wait() == code);
  }
}

TEST_CASE("the culprit is who failed by itself, not who failed because of it", "[unit]") {
  const auto cause = [](int exit_code, const std::string& message = "") {
    Failure failure = death(0, exit_code, 100);
    failure.message = message;
    return cause_of(failure);
  };
  CHECK(cause(kPreempted) == Cause::kPreempted);
  CHECK(cause(128 + SIGKILL) == Cause::kKilled);
  for (const int own : {3, 74, 128 + SIGSEGV}) CHECK(cause(own) == Cause::kOwn);
  CHECK(cause(1, "ValueError: no such word") == Cause::kOwn);
  CHECK(cause(128 + SIGABRT, "terminate: index out of range") == Cause::kOwn);
  for (const int silent : {1, 128 + SIGABRT}) CHECK(cause(silent) == Cause::kSilent);
  CHECK(cause(kPeerFailure) == Cause::kConsequence);
  CHECK(cause(1, "PeerError: rank 2 does not respond") == Cause::kConsequence);
  CHECK(cause(1, "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:4242") ==
        Cause::kConsequence);
  CHECK(cause(128 + SIGABRT, "terminate: Connection reset by peer") == Cause::kConsequence);
  for (const char* reaction :
       {"BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistStoreError: wait timeout after 1800000ms, keys: /worker/1",
        "RuntimeError: Socket Timeout", "DistNetworkError: The client socket has timed out after 60000ms",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE)",
        "Process group watchdog thread terminated with exception: NCCL error"})
    CHECK(cause(1, reaction) == Cause::kConsequence);
  CHECK(cause(1,
              "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
              "prematurely.") == Cause::kConsequence);
  // Of two failures that are seen together: first the likelier cause, then the earlier time in the error files, then a
  // signal.
  CHECK(likelier_cause(death(7, 128 + SIGKILL, 101), death(0, 1, 100)));
  CHECK(likelier_cause(death(7, 1, 101), death(0, kPeerFailure, 100)));
  CHECK(likelier_cause(death(0, 128 + SIGSEGV, 101), death(7, 1, 100)));
  CHECK(likelier_cause(death(7, 128 + SIGSEGV, 100), death(0, 1, 100)));
  CHECK(likelier_cause(death(0, 1, 100), death(7, 128 + SIGABRT, 100)));
  CHECK(likelier_cause(death(0, 128 + SIGABRT, 100), death(7, 1, 100)));
  CHECK(likelier_cause(death(0, 2, 100), death(7, 2, 100)));
  CHECK(likelier_cause(death(7, 2, 101), death(0, 1, 100)));
}

TEST_CASE("of ranks that are dead when bertrun looks, the culprit comes back", "[unit]") {
  const TemporaryDirectory directory;
  const std::string wrote =
      R"(echo '{"message": {"message": "E", "extraInfo": {"timestamp": "1"}}}' >$TORCHELASTIC_ERROR_FILE; )";
  struct Row {
    std::string first, second;
    int code;
  };
  for (const Row& row :
       {Row{"exit 69", "kill -9 $$", 137}, Row{"exit 69", "kill -ABRT $$", 134}, Row{"exit 69", "exit 3", 3},
        Row{"exit 70", "kill -9 $$", 137}, Row{"exit 3", wrote + "exit 4", 4}}) {
    CAPTURE(row.first, row.second);
    std::filesystem::remove(directory.path("go"));
    for (const char* name : {"up0", "up1"}) std::filesystem::remove(directory.path(name));
    Launcher launcher(shell({"--nproc-per-node", "2"}, "touch " + directory.path("up") + "$RANK; " +
                                                           until(directory.path("go")) + "if [ $RANK = 0 ]; then " +
                                                           row.first + "; fi; " + row.second));
    REQUIRE(eventually([&] { return exists(directory.path("up0")) && exists(directory.path("up1")); }));
    // The guard and two ranks.
    REQUIRE(eventually([&] { return children_of(launcher.pid()).size() == 3; }));
    const std::vector<pid_t> children = children_of(launcher.pid());
    launcher.signal(SIGSTOP);
    std::ofstream(directory.path("go")).flush();
    REQUIRE(eventually([&] { return std::ranges::count_if(children, alive) == 1; }));
    launcher.signal(SIGCONT);
    CHECK(launcher.wait() == row.code);
  }
}

TEST_CASE("a rank that is stopped is named and not waited for", "[unit]") {
  const TemporaryDirectory directory;
  setenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "30", 1);  // the test does not wait for it
  Launcher launcher(shell({"--nproc-per-node", "2"}, "if [ $RANK = 1 ]; then echo $$ >" + directory.path("pid") +
                                                         "; kill -STOP $$; fi; " + until(directory.path("go")) +
                                                         "exit 69"));
  unsetenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
  REQUIRE(eventually([&] { return !pids_in(directory.path("pid")).empty(); }));
  const pid_t stopped = pids_in(directory.path("pid")).front();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::ofstream(directory.path("go")).flush();
  CHECK(eventually([&] { return launcher.ended(); }));
  CHECK(launcher.wait() == kPeerFailure);
  CAPTURE(launcher.err());
  CHECK(launcher.err().find("rank 0 (local rank 0, ") != std::string::npos);
  CHECK(launcher.err().find("; rank 1 (host ") != std::string::npos);
  CHECK(launcher.err().find(", pid " + std::to_string(stopped) + ") is stopped") != std::string::npos);
}

TEST_CASE("a rank that is stopped goes on when it is to save", "[unit]") {
  const TemporaryDirectory directory;
  Launcher launcher(
      shell({}, "trap 'exit 75' TERM; echo $$ >" + directory.path("pid") + "; while :; do sleep 0.05; done"));
  REQUIRE(eventually([&] { return !pids_in(directory.path("pid")).empty(); }));
  kill(pids_in(directory.path("pid")).front(), SIGSTOP);
  launcher.signal(SIGTERM);
  CHECK(eventually([&] { return launcher.ended(); }));
  CHECK(launcher.wait() == kPreempted);
}

TEST_CASE("of a rank that is killed the phase and the last collective are told, without log files too", "[unit]") {
  const TemporaryDirectory directory;
  const std::string own = directory.path("own.json");
  // Does the same as app/system/error_report.cc: maps the file that the variable names.
  const std::string writes =
      "printf 'forward\\0' 1<>$BERTRUN_STATE; "
      "{ dd bs=64 seek=1 conv=notrunc of=$BERTRUN_STATE 2>/dev/null <<X\nall_reduce 12\nX\n}; "
      "kill -9 $$";
  Launcher launcher(shell({"--log-dir", directory.path("logs")}, writes));
  CHECK(launcher.wait() == 128 + SIGKILL);
  CAPTURE(launcher.err());
  CHECK(launcher.err().find("(SIGKILL), in phase forward, last collective all_reduce 12; ") != std::string::npos);
  const auto error = json_of(only_file(directory.path("logs"), "0/error.json"));
  CHECK(error.at("phase") == "forward");
  CHECK(error.at("last_collective") == "all_reduce 12\n");
  setenv("TORCHELASTIC_ERROR_FILE", own.c_str(), 1);
  Launcher without_files(shell({"--log-dir", "/dev/null"}, writes));
  unsetenv("TORCHELASTIC_ERROR_FILE");
  CHECK(without_files.wait() == 128 + SIGKILL);
  CHECK(json_of(own).at("phase") == "forward");
}

TEST_CASE("a rank publishes into what its launcher gave it, and into nothing else", "[unit]") {
  const TemporaryDirectory directory;
  const auto in_child = [](const std::string& path, const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      setenv(kRankStateVariable, path.c_str(), 1);
      body();
      _exit(0);
    }
    waitpid(pid, nullptr, 0);
  };
  const Descriptor state(make_rank_state());
  REQUIRE(state);
  const std::string path = "/proc/self/fd/" + std::to_string(state.get());
  CHECK(read_rank_state(state.get()).phase.empty());
  in_child(path, [] {
    set_phase(Phase::kReduction);
    set_phase(Phase::kUpdate);
    set_last_collective("all_reduce of Float [7]");
    raise(SIGKILL);
  });
  CHECK(read_rank_state(state.get()).phase == "update");
  CHECK(read_rank_state(state.get()).last_collective == "all_reduce of Float [7]");
  in_child(path, [] {
    publish_phase(std::string(1000, 'p'));
    publish_last_collective(std::string(1000, 'c'));
  });
  CHECK(read_rank_state(state.get()).phase == std::string(63, 'p'));
  CHECK(read_rank_state(state.get()).last_collective == std::string(447, 'c'));
  // A named file of the same size is not written, and no file is made.
  std::ofstream(directory.path("file")) << std::string(512, 'f');
  in_child(directory.path("file"), [] { set_phase(Phase::kUpdate); });
  CHECK(read_file(directory.path("file")) == std::string(512, 'f'));
  in_child(directory.path("absent"), [] { set_phase(Phase::kUpdate); });
  CHECK_FALSE(exists(directory.path("absent")));
  CHECK(read_rank_state(-1).phase.empty());
}
