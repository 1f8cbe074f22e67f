// The output of a run: metrics.jsonl, summary.json, the progress line and messages.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <string>

#include "app/config/pretrain_config.h"
#include "app/plan/flops.h"
#include "app/report/metrics.h"
#include "app/train/evaluation.h"
#include "app/train/training_step.h"
#include "data/loader/dataloader.h"

namespace bert {

/// Every rank has one and counts its own work; rank 0 writes and prints. The constructor measures the rate of the
/// device's matrix products, to which MFU refers.
class RunLog {
 public:
  /// `step` must outlive this object. `objective` is the objective of the run.
  RunLog(const PretrainConfig& config, Objective objective, TrainingStep& step);

  /// Prints a message on standard error, above the progress line.
  void say(const std::string& text);

  /// Opens metrics.jsonl and drops its lines after step `saved`, that of the checkpoint from which the run continues;
  /// -1: the run begins. Throws IoError.
  void open(int64_t saved);
  /// Begins the first interval and shows the progress line, which ends at `last_step`.
  void start(int64_t applied, int64_t last_step);
  /// Counts a micro-batch of the current step, which next() of `loader` has returned; `batch` is on the CPU.
  void add(const PackedBatch& batch, const PretrainingDataLoader& loader);
  void step_tried() { ++tried_; }
  /// Excludes time that was not spent on training.
  void leave_out(std::chrono::steady_clock::duration time) { interval_start_ += time; }
  /// Writes the line of the interval that ends with step `applied`, and begins the next interval. Every rank must call
  /// it. Waits for the device.
  void write_interval(int64_t applied);
  void write_evaluation(int64_t applied, const Evaluation& evaluation);
  /// Ends the progress line.
  void finish();

  /// The error of the first line that could not be written (no line is written after it); nullptr if there is none.
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

  /// Figures of the last evaluation and of step 0, by their names in summary.json. Checkpoints keep them.
  [[nodiscard]] const std::map<std::string, double>& figures() const { return figures_; }
  void restore(std::map<std::string, double> figures) { figures_ = std::move(figures); }
  /// Writes summary.json for a run at step `applied`, without the rate if this process has trained no interval. Throws
  /// IoError.
  void write_summary(int64_t applied);
  /// Writes summary.json if it is absent or belongs to another step: an earlier process may have been killed.
  void mend_summary(int64_t applied);

 private:
  /// The work of this interval, over all ranks.
  struct Work {
    double tokens = 0, least_tokens = 0, most_tokens = 0;  // of all ranks; of the ranks with least and most
    double flops = 0, capacity = 0;                        // capacity: tokens that the micro-batches could have held
    double most_seconds_waited = 0;                        // of a rank, for the loader
    std::vector<double> examples, masked_tokens;           // of each source
  };
  [[nodiscard]] Work sum_work() const;
  [[nodiscard]] bool chief() const { return step_.rank() == 0; }
  void write(const nlohmann::ordered_json& line);

  PretrainConfig config_;
  std::string pairs_;  // the objective's name in the names of figures; "" without pairs
  TrainingStep& step_;
  FlopCounter flop_counter_;
  double gemm_flops_;
  std::optional<MetricsFile> file_;
  std::exception_ptr failure_;
  std::optional<Progress> progress_;
  std::map<std::string, double> figures_;
  std::optional<double> sequences_per_second_;  // of the last interval; figures_ lacks it, as checkpoints keep figures_

  // The current interval.
  std::chrono::steady_clock::time_point interval_start_ = std::chrono::steady_clock::now();
  int64_t tried_ = 0, first_step_ = 0, tokens_ = 0, capacity_ = 0;
  double flops_ = 0;
  struct SourceCounts {
    std::string name;
    int64_t examples = 0, masked_tokens = 0;
  };
  std::vector<SourceCounts> sources_;             // empty unless there are several
  double waited_ = 0, waited_before_ = 0;         // seconds that the loader has waited, and its count at the begin
  int64_t corrupted_ = 0, corrupted_before_ = 0;  // damaged rows that were replaced, likewise
};

}  // namespace bert
