// Output of a run for programs and people: metrics.jsonl and progress.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/report/line_file.h"

namespace bert {

/// A file of JSON objects with a `step`, such as metrics.jsonl of a run. Each line is written as a whole.
class MetricsFile {
 public:
  /// Opens `path` for appending. First drops the lines of steps after `last_step`, which a run that was killed after
  /// its last checkpoint leaves, and an incomplete last line. Throws IoError.
  MetricsFile(const std::string& path, int64_t last_step);
  /// Throws IoError with the path, and for a full disk with the needed and the free bytes.
  void write(const nlohmann::ordered_json& line) { file_.write(line.dump()); }

 private:
  LineFile file_;
};

/// Figures of one log interval.
struct StepMetrics {
  int64_t step = 0, max_steps = 0, skipped = 0;
  double loss = 0, learning_rate = 0, grad_norm = 0, loss_scale = 1;
  std::vector<std::pair<std::string, double>> terms;  // of which `loss` is the sum, by name; none: it has no parts
  double sequences_per_second = 0, tokens_per_second = 0, mfu = 0;
};

/// Progress on standard error: a bar with the time left on a terminal, otherwise plain lines. A thread of its own shows a
/// sign of life when nothing else was shown for `longest_silence`: the step, the activity, the rate and the time left.
class Progress {
 public:
  using Clock = std::chrono::steady_clock;
  /// Gets each plain line and each message, without a line end. One thread at a time calls it.
  using Record = std::function<void(const std::string& line)>;

  /// Shows the first sign of life `longest_silence` after this call. `activity` names the work of this moment, such as
  /// "evaluation"; any thread may call it.
  Progress(std::function<std::string()> activity, Record record,
           Clock::duration longest_silence = std::chrono::seconds(30));
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Training begins: rate and time left count from here.
  void start(int64_t first_step, int64_t last_step);
  /// `step` steps have been tried. Shows nothing.
  void reached(int64_t step);
  /// Shows the bar or a line.
  void update(const StepMetrics& metrics);
  /// Prints a line above the bar.
  void message(const std::string& text);
  void finish();

 private:
  void watch();
  void sign_of_life();
  void show_bar(const StepMetrics& metrics);
  void line(const std::string& text);
  /// Removes the bar, also one that a terminal has wrapped because it is narrower now.
  void erase_bar();
  [[nodiscard]] double seconds_left(int64_t step) const;

  const bool terminal_;
  const std::function<std::string()> activity_;
  const Record record_;
  const Clock::duration longest_silence_;
  std::mutex mutex_;  // for the members below
  std::condition_variable changed_;
  int64_t first_step_ = 0, last_step_ = 0, reached_ = 0;
  Clock::time_point start_ = Clock::now(), shown_ = Clock::now();
  StepMetrics metrics_;  // of the last update
  bool training_ = false, ended_ = false;
  int64_t bar_columns_ = 0;  // of the bar on the screen; 0: there is none
  std::thread watcher_;
};

/// The line that is shown when nothing else was for a while. `seconds` have passed since `first_step`.
std::string life_line(int64_t step, int64_t first_step, int64_t last_step, double seconds, const std::string& activity);

/// A line of progress of at most `columns` columns: a bar of the `share` that is done, the step, the time left (`eta`,
/// seconds), and as many of the other figures as fit.
std::string progress_line(const StepMetrics& metrics, double share, double eta, int columns);

/// Hours, minutes and seconds: "1:02:03", or "02:03" below an hour.
std::string format_duration(double seconds);

}  // namespace bert
