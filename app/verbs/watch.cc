#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "app/cli/command_line.h"
#include "app/report/view/run_files.h"
#include "app/report/view/run_watch.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/host.h"
#include "app/verbs/verbs.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;

size_t terminal_columns() {
  constexpr size_t kUsualColumns = 80;
  winsize window{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return known ? window.ws_col : kUsualColumns;
}

/// Standard output: a screen that is drawn anew in its place, or lines one after another where it is no terminal.
class Output {
 public:
  /// Shows the state of `run`, or the lines that it has got.
  void show(const RunWatch& run, const std::vector<std::string>& lines) {
    std::string text;
    if (terminal_) {
      if (shown_ > 0) text += fmt::format("\x1b[{}A\x1b[J", shown_);  // up to the first line; clears the rest
      const std::vector<std::string> screen = run.screen(terminal_columns() - 1, seconds_since_epoch());
      for (const std::string& line : screen) text += line + "\n";
      shown_ = screen.size();
    } else {
      for (const std::string& line : lines) text += line + "\n";
    }
    std::fputs(text.c_str(), stdout);
    flush_standard_output();
  }

 private:
  const bool terminal_ = isatty(STDOUT_FILENO) == 1;
  size_t shown_ = 0;  // lines on the screen
};

/// Shows the run until it ends. Returns its exit code. A failed run has ended when no process has gone on with it for ten
/// looks.
int watch(RunWatch& run, double interval) {
  constexpr double kPatience = 10;
  Output output;
  Clock::time_point gone;  // the last look that found something new, without a process
  bool is_gone = false;
  for (;;) {
    const std::vector<std::string> lines = run.update();
    output.show(run, lines);
    std::string why;
    const std::optional<int> code = run.exit_code(why);
    if (!code) {
      is_gone = false;
    } else if (*code == kOk) {
      return kOk;
    } else if (!is_gone || !lines.empty()) {
      is_gone = true;
      gone = Clock::now();
    } else if (Clock::now() - gone >= std::chrono::duration<double>(kPatience * interval)) {
      if (!why.empty()) fmt::print(stderr, "bert watch: {}\n", why);
      return *code;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(interval));
  }
}

}  // namespace

int watch_command(int argc, char** argv) {
  CLI::App app(
      "Shows a run while it trains, once a second: steps, time left, loss, rate, ranks, memory. It reads the files of "
      "the run directory alone, so it also works on another machine of a shared file system, and Ctrl-C ends the watch "
      "only. Ends with the exit code of the run; with 70 if the run's process is gone from this machine without a "
      "word. Where standard output is no terminal, it prints a line for each line of metrics.jsonl.",
      "bert watch");
  app.footer("Example: bert watch runs/first");
  std::string directory;
  double interval = 1;  // seconds
  app.add_option("RUN", directory, "run directory")->required();
  app.add_option("--interval", interval, "seconds between two looks")
      ->check(number_in(0.1, 3600.0))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  check_run_directory(directory);
  RunWatch run(directory, machine_name());
  return watch(run, interval);
}

}  // namespace bert
