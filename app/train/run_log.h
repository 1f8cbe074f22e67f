// What a run says while it trains: metrics.jsonl, summary.json, a line of progress, sentences for people.
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

namespace bert {

/// Every rank has one and counts its work in it; rank 0 writes and prints. Measures at its construction what the
/// device's matrix products reach, which MFU is a share of.
class RunLog {
 public:
  /// `step` must outlive it.
  RunLog(const PretrainConfig& config, TrainingStep& step);

  /// A sentence on standard error, above the line of progress.
  void say(const std::string& text);

  /// Opens metrics.jsonl to go on after the checkpoint of step `saved`, -1 where the run begins: later lines are
  /// dropped. Throws IoError.
  void open(int64_t saved);
  /// Begins the first interval, and the line of progress to `last_step`.
  void start(int64_t applied, int64_t last_step);
  /// One of the step's micro-batches, on the CPU.
  void add(const PackedBatch& batch);
  void step_tried() { ++tried_; }
  /// Time that was not spent on training.
  void leave_out(std::chrono::steady_clock::duration time) { interval_start_ += time; }
  /// The line of the interval that ends with step `applied`; the next one begins. Every rank calls it. Waits for the
  /// device.
  void write_interval(int64_t applied);
  void write_evaluation(int64_t applied, const Evaluation& evaluation);
  /// The line of progress ends.
  void finish();

  /// What was in the way when a line could not be written, after which there are no more; nullptr when all were.
  [[nodiscard]] std::exception_ptr failure() const { return failure_; }

  /// Of the last evaluation and of step 0, by their names in summary.json: what a checkpoint keeps.
  [[nodiscard]] const std::map<std::string, double>& figures() const { return figures_; }
  void restore(std::map<std::string, double> figures) { figures_ = std::move(figures); }
  /// summary.json of a run at step `applied`, without the rate where this process has trained no interval. Throws
  /// IoError.
  void write_summary(int64_t applied);
  /// The same where there is none, or one of another step: a killed process wrote it, or did not come to it.
  void mend_summary(int64_t applied);

 private:
  [[nodiscard]] bool chief() const { return step_.rank() == 0; }
  void write(const nlohmann::ordered_json& line);

  PretrainConfig config_;
  TrainingStep& step_;
  FlopCounter flop_counter_;
  double gemm_flops_;
  std::optional<MetricsFile> file_;
  std::exception_ptr failure_;
  std::optional<Progress> progress_;
  std::map<std::string, double> figures_;
  std::optional<double> sequences_per_second_;  // of the last interval; not in figures_, which a checkpoint keeps

  // Of the interval.
  std::chrono::steady_clock::time_point interval_start_ = std::chrono::steady_clock::now();
  int64_t tried_ = 0, first_step_ = 0, tokens_ = 0;
  double flops_ = 0;
};

}  // namespace bert
