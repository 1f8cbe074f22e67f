// Output of ranks to a console that is slow or that nobody reads, and the loop that carries the output.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "app/launcher/ranks/worker_logs.h"
#include "app/net/event_loop.h"
#include "tests/support/event_loop_testing.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_until;
using bert::testing::TemporaryDirectory;

namespace {

/// A pipe in place of this process' stdout. The test must not use assertions while it exists.
class PipedStdout {
 public:
  PipedStdout() : saved_(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return;
    read_end_ = Descriptor(ends[0]);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
  }
  ~PipedStdout() { dup2(saved_.get(), STDOUT_FILENO); }
  PipedStdout(const PipedStdout&) = delete;
  PipedStdout& operator=(const PipedStdout&) = delete;
  /// The bytes that are in the pipe now.
  std::string take() {
    std::string text;
    std::array<char, 4096> buffer{};
    for (ssize_t got = 0; (got = read(read_end_.get(), buffer.data(), buffer.size())) > 0;)
      text.append(buffer.data(), static_cast<size_t>(got));
    return text;
  }

 private:
  Descriptor saved_, read_end_;
};

/// One teed rank that writes `text` before its end and "late" after it.
struct Teed {
  explicit Teed(EventLoop& loop) {
    config.logs.directory = directory.path();
    config.logs.tee.all = kStdout;
    config.logs.prefix_template = "";
    logs.emplace(loop, config);
  }
  void write(const std::string& text) {
    const std::string file = logs->start_attempt({}).front().stdout_file;
    std::ofstream(file) << text;
    logs->finish_attempt();
    std::ofstream(file, std::ios::app) << "late";
  }
  TemporaryDirectory directory;
  LaunchConfig config;
  std::optional<WorkerLogs> logs;
};

std::string numbers(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("what a rank has written when it ends arrives at a slow console, and nothing later", "[unit]") {
  EventLoop loop;
  Teed rank(loop);
  const std::string text = numbers(200'000) + "no end";  // more than a pipe and the launcher hold
  std::string got;
  bool at_once = false, drained = false;
  {
    PipedStdout console;
    rank.write(text);
    at_once = rank.logs->drained();
    drained = run_until(loop, [&] {
      got += console.take();
      return rank.logs->drained();
    });
    got += console.take();
  }
  CHECK_FALSE(at_once);  // the launcher did not wait either
  CHECK(drained);
  CHECK(got == text);
}

TEST_CASE("what nobody reads is dropped when the patience is at its end", "[unit]") {
  EventLoop loop;
  Teed rank(loop);
  std::string got;
  bool drained = false;
  {
    PipedStdout console;
    rank.write(numbers(200'000));
    rank.logs->set_patience(0.2);
    drained = run_until(loop, [&] { return rank.logs->drained(); });
    got = console.take();
  }
  CHECK(drained);
  CHECK(got.size() >= 4096);
  CHECK(numbers(200'000).starts_with(got));
}

TEST_CASE("a timer that starts itself anew keeps nothing else out", "[unit]") {
  EventLoop loop;
  int runs = 0;
  std::function<void()> again = [&] {
    if (++runs < 1000) loop.after(0, again);
  };
  loop.after(0, again);
  loop.run_once();
  CHECK(runs == 1);
  bool other = false;
  loop.after(0, [&] { other = true; });
  loop.run_once();
  CHECK(other);
  CHECK(runs == 2);
}
