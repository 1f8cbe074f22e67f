// Output of a run for programs and people: metrics.jsonl and progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "data/io/files.h"

namespace bert {

/// The file metrics.jsonl of a run. Each line is written as a whole.
class MetricsFile {
 public:
  /// Opens `path` for appending. First drops the lines of steps after `last_step`, which a run that was killed after
  /// its last checkpoint leaves, and an incomplete last line. Throws IoError.
  MetricsFile(const std::string& path, int64_t last_step);
  /// Throws IoError with the path, and for a full disk with the needed and the free bytes.
  void write(const nlohmann::ordered_json& line) { file_.write(line.dump() + "\n"); }

 private:
  AppendedFile file_;
};

/// Figures of one log interval.
struct StepMetrics {
  int64_t step = 0, max_steps = 0, skipped = 0;
  double loss = 0, mlm_loss = 0, learning_rate = 0, grad_norm = 0, loss_scale = 1;
  std::string pairs;     // objective of the sentence pairs, nsp or sop; "" without pairs
  double pair_loss = 0;  // part of `loss`
  double sequences_per_second = 0, tokens_per_second = 0, mfu = 0;
};

/// Progress on standard error: a bar with the time left on a terminal, otherwise one plain line for each call.
class Progress {
 public:
  Progress(int64_t first_step, int64_t last_step);
  void update(const StepMetrics& metrics);
  /// Prints a line above the bar.
  void message(const std::string& text);
  void finish();

 private:
  bool terminal_;
  int64_t first_step_, last_step_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  bool bar_shown_ = false;
};

/// A line of progress of at most `columns` columns: a bar of the `share` that is done, the step, the time left (`eta`,
/// seconds), and as many of the other figures as fit.
std::string progress_line(const StepMetrics& metrics, double share, double eta, int columns);

/// Hours, minutes and seconds: "1:02:03", or "02:03" below an hour.
std::string format_duration(double seconds);

}  // namespace bert
