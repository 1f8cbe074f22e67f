#include "app/report/view/run_watch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "app/report/view/file_tail.h"
#include "app/system/machine/host.h"
#include "app/verbs/verbs.h"
#include "data/io/files.h"
#include "tests/support/command_testing.h"
#include "tests/testing.h"

using namespace bert;
using namespace bert::testing;

namespace {

using nlohmann::json;

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::app) << text;
}

/// A run directory that a test fills in.
class Run {
 public:
  Run() { append(path("config.json"), R"({"max_steps": 100, "stop_at_step": 0, "global_batch_size": 8})"); }
  [[nodiscard]] std::string path(const std::string& file = "") const { return directory_.path(file); }
  void begin(int64_t pid, const std::string& host) const {
    const json line = {{"event", "begin"}, {"time", now()},   {"step", 0},           {"host", host}, {"pid", pid},
                       {"device", "cpu"},  {"world_size", 2}, {"precision", "fp32"}, {"threads", 1}};
    append(path("attempts.jsonl"), line.dump() + "\n");
  }
  void step(int64_t step, double time) const {
    const json line = {{"step", step},
                       {"steps", 10},
                       {"loss", 10.0 - static_cast<double>(step) / 20},
                       {"learning_rate", 0.001},
                       {"loss_scale", 65536},
                       {"skipped_steps", 1},
                       {"sequences_per_second", 40},
                       {"tokens_per_rank", {{"least", 90}, {"most", 100}}},
                       {"time", time},
                       {"elapsed_seconds", time - 1000}};
    append(path("metrics.jsonl"), line.dump() + "\n");
  }
  void end(int code, const std::string& reason) const {
    const json line = {{"event", "end"}, {"time", now()}, {"step", 20}, {"exit_code", code}, {"reason", reason}};
    append(path("attempts.jsonl"), line.dump() + "\n");
  }
  [[nodiscard]] CommandResult watch(const std::string& interval = "0.1") const {
    return run_command(watch_command, {"watch", path(), "--interval", interval});
  }

 private:
  TemporaryDirectory directory_;
};

/// The number of a process that has ended.
int64_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

}  // namespace

TEST_CASE("A tail returns whole lines once, and a new file from its begin", "[unit][report]") {
  const TemporaryDirectory directory;
  const std::string path = directory.path("lines");
  FileTail tail(path);
  bool anew = true;
  CHECK(tail.read(anew).empty());
  CHECK_FALSE(anew);
  append(path, "one\ntw");
  CHECK(tail.read(anew) == std::vector<std::string>{"one"});
  append(path, "o\nthree\n");
  CHECK(tail.read(anew) == std::vector<std::string>{"two", "three"});
  CHECK(tail.read(anew).empty());
  CHECK_FALSE(anew);
  AtomicFile replacement(path);
  replacement.write("one\nTWO\nthree\n");
  replacement.commit();
  CHECK(tail.read(anew) == std::vector<std::string>{"one", "TWO", "three"});
  CHECK(anew);
}

TEST_CASE("bert watch prints a line for each line and ends with the run's exit code", "[unit][report]") {
  const Run run;
  run.begin(getpid(), machine_name());
  run.step(10, 1010);
  append(run.path("metrics.jsonl"), "{damaged\n");
  std::jthread trainer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    run.step(20, 1020);
    append(run.path("metrics.jsonl"), R"({"step": 20, "evaluation": {"mlm_loss": 5.25}, "time": 1021})"
                                      "\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
    run.end(75, "SIGTERM");
  });
  const CommandResult result = run.watch();
  CHECK(result.code == 75);
  CHECK_THAT(result.out, Contains("begins at step 0 on " + machine_name() + ": cpu, 2 ranks\n"));
  CHECK_THAT(result.out, Contains("step 10/100  loss 9.5000  lr 0.001  40.0 seq/s  skipped 1  eta 00:18\n"));
  // Ten steps took 10 s, so the last 80 take 80 s.
  CHECK_THAT(result.out, Contains("step 20/100  loss 9.0000  lr 0.001  40.0 seq/s  skipped 2  eta 01:20\n"));
  CHECK_THAT(result.out, Contains("step 20  evaluation  mlm_loss 5.25\n"));
  CHECK_THAT(result.out, Contains("ends at step 20 with exit code 75: SIGTERM\n"));
}

TEST_CASE("bert watch ends with 70 when the process is gone without a word", "[unit][report]") {
  const Run run;
  run.begin(ended_process(), machine_name());
  const CommandResult result = run.watch();
  CHECK(result.code == kInternal);
  CHECK_THAT(result.err, Contains("is gone, and has not recorded its end"));
}

TEST_CASE("bert watch goes on with a later process of the run", "[unit][report]") {
  const Run run;
  run.begin(getpid(), machine_name());
  run.end(75, "SIGTERM");
  std::jthread trainer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    run.begin(getpid(), machine_name());
    run.step(20, 1020);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    run.end(0, "finished");
  });
  const CommandResult result = run.watch("1");
  CHECK(result.code == kOk);
  CHECK_THAT(result.out, Contains("ends at step 20 with exit code 75: SIGTERM\n"));
  CHECK_THAT(result.out, Contains("step 20/100  loss 9.0000"));
  CHECK_THAT(result.out, Contains("ends at step 20 with exit code 0: finished\n"));
}

TEST_CASE("A watch returns the lines of replaced files that it has not returned before", "[unit][report]") {
  const Run run;
  run.begin(getpid(), "elsewhere");
  run.step(10, 1010);
  run.step(20, 1020);
  RunWatch watch(run.path(), machine_name());
  CHECK(watch.update().size() == 3);
  for (const char* name : {"metrics.jsonl", "attempts.jsonl"}) {
    const std::string text = read_file(run.path(name));
    AtomicFile replacement(run.path(name));
    replacement.write(text.substr(0, text.find('\n') + 1));
    replacement.commit();
  }
  run.step(12, 1032);
  run.end(75, "SIGTERM");
  const std::vector<std::string> lines = watch.update();
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Contains("step 12/100"));
  CHECK_THAT(lines[1], Contains("exit code 75"));
}

TEST_CASE("A run of another machine goes on as far as its files say", "[unit][report]") {
  const Run run;
  run.begin(ended_process(), "elsewhere");
  RunWatch watch(run.path(), machine_name());
  CHECK(watch.update().size() == 1);
  std::string why;
  CHECK_FALSE(watch.exit_code(why));
  run.begin(getpid(), "elsewhere");
  run.end(0, "finished");
  CHECK(watch.update().size() == 2);
  CHECK(watch.exit_code(why) == 0);
}

TEST_CASE("A process with the number of an earlier one is another process", "[unit][report]") {
  CHECK(WatchedMachine::lives(getpid(), now()));
  CHECK_FALSE(WatchedMachine::lives(getpid(), now() - 1e6));
  CHECK_FALSE(WatchedMachine::lives(ended_process(), now()));
  CHECK(WatchedMachine::memory_of(getpid()) > 1 << 20);
}

TEST_CASE("The screen of a watch has rate, time left, curve, balance and scale", "[unit][report]") {
  const Run run;
  run.begin(getpid(), machine_name());
  run.step(10, 1010);
  run.step(20, 1020);
  append(run.path("metrics.jsonl"), R"({"step": 20, "evaluation": {"mlm_loss": 5.25, "examples": 40}, "time": 1021})"
                                    "\n");
  RunWatch watch(run.path(), machine_name());
  watch.update();
  const std::vector<std::string> screen = watch.screen(100, 1080);
  std::string text;
  for (const std::string& line : screen) text += line + "\n";
  CHECK_THAT(text, Contains(", 2 ranks, fp32\n"));
  CHECK_THAT(text, Contains(" step 20/100  20.0 %  eta 01:20\n"));
  CHECK_THAT(text, Contains("loss        9.0000    █▁\n"));
  CHECK_THAT(text, Contains("rate        40 sequences/s\n"));
  CHECK_THAT(text, Contains("ranks       90 to 100 tokens, the least 90.0 % of the most\n"));
  CHECK_THAT(text, Contains("loss scale 65536  skipped 2\n"));
  CHECK_THAT(text, Contains("evaluation  step 20  mlm_loss 5.25\n"));
  CHECK_THAT(text, Contains("memory      "));
  CHECK_THAT(text, Contains("state       last line 01:00 ago\n"));
  for (const std::string& line : watch.screen(20, 1080)) {
    size_t characters = 0;
    for (const char c : line) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
    CHECK(characters <= 20);
  }
}

TEST_CASE("bert watch refuses what is no run directory", "[unit][report]") {
  const TemporaryDirectory directory;
  CHECK(run_command(watch_command, {"watch", directory.path("absent")}).code == kInputMissing);
  CHECK(run_command(watch_command, {"watch", directory.path()}).code == kInputMissing);
}
