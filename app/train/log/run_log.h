// The output of a run: its numbers for all sinks (app/report/sink.h), and its messages in run.log and on the console.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/config/run_config.h"
#include "app/report/console_sink.h"
#include "app/report/metrics.h"
#include "app/report/sink.h"
#include "app/train/log/work_meter.h"
#include "app/train/step/optimizer_step.h"
#include "data/io/files.h"
#include "data/loader/global_step.h"

namespace bert {

/// summary.json: the figures of a run's newest evaluation.
class RunSummary {
 public:
  RunSummary(std::string run_directory, int64_t max_steps, std::string config_sha256)
      : path_(std::move(run_directory) + "/summary.json"), max_steps_(max_steps), sha256_(std::move(config_sha256)) {}

  /// Figures of the last evaluation and of step 0, by their names in summary.json. Checkpoints keep them.
  [[nodiscard]] const std::map<std::string, double>& figures() const { return figures_; }
  void restore(std::map<std::string, double> figures) { figures_ = std::move(figures); }
  /// Replaces the figures of these names.
  void take(const std::map<std::string, double>& figures);
  /// The rate of the last interval, which checkpoints do not keep.
  void set_rate(double sequences_per_second) { sequences_per_second_ = sequences_per_second; }

  /// Writes the file for a run at step `applied`. Throws IoError.
  void write(int64_t applied) const;
  /// Writes the file if it is absent or belongs to another step: an earlier process may have been killed.
  void mend(int64_t applied) const;

 private:
  const std::string path_;
  const int64_t max_steps_;
  const std::string sha256_;
  std::map<std::string, double> figures_;
  std::optional<double> sequences_per_second_;
};

/// The figures of an evaluation.
struct EvaluationReport {
  nlohmann::ordered_json figures;         // of its line in metrics.jsonl
  std::string text;                       // of its line on standard error, after "step N: "
  std::map<std::string, double> summary;  // figures of summary.json and of checkpoints
  std::string main_figure;                // name in `figures` of the one by which evaluations are compared
};

/// The properties of a run that its log has beside its configuration.
struct RunLogOptions {
  std::string config_sha256;
  bool pooler = true;                     // the model has one, and a head on it: counts for the FLOPs
  std::vector<std::string> sources = {};  // names, if the run mixes several
};

/// Every rank has one and counts its own work; rank 0 writes and prints.
class RunLog {
 public:
  /// `step` must outlive this object. Opens run.log for appending. Throws IoError.
  RunLog(const RunConfig& config, const RunLogOptions& options, OptimizerStep& step);

  /// Prints a message on standard error, above the progress line, and appends it to run.log. Without "console" among
  /// config.report it does not print.
  void say(const std::string& text);
  /// Appends a message to run.log alone.
  void note(const std::string& text);

  /// Makes the sinks, which drop their lines after step `saved`, that of the checkpoint from which the run continues;
  /// -1: the run begins. From now on a long silence is broken by a sign of life. Throws IoError.
  void open(int64_t saved);
  /// This process begins to train, or to evaluate first: the begin of every sink. Throws IoError.
  void begin(RunFacts facts);
  /// Begins the first interval of a training that ends at `last_step`. `gemm_flops`: measure_gemm(), to which MFU
  /// refers.
  void start(int64_t applied, int64_t last_step, double gemm_flops);
  /// The length of the run is known by now.
  void set_max_steps(int64_t steps) { config_.max_steps = steps; }
  /// Counts the work of a step, whose micro-batches are on the CPU.
  void add(const GlobalStep& step) { work_.add(step); }
  void step_tried();
  /// Excludes time that was not spent on training.
  void leave_out(std::chrono::steady_clock::duration time) { interval_start_ += time; }
  /// Writes the line of the interval that ends with step `applied`, and begins the next interval. Every rank must call
  /// it. Waits for the device.
  void write_interval(int64_t applied);
  void evaluation_begins(int64_t applied);
  void write_evaluation(int64_t applied, const EvaluationReport& evaluation);
  /// Passes `line` to answers.jsonl unless it is null.
  void write_answers(const nlohmann::ordered_json& line);
  /// Writes the layers and histograms that config.report asks for, once for each step. Every rank must call
  /// it. Waits for the device.
  void write_layers(int64_t applied);
  /// Ends the progress line.
  void finish();
  /// The last lines of every sink. `finished`: no signal has stopped the run.
  void end(int64_t applied, bool finished);
  /// The error of the first line that could not be written, of any sink or of run.log (no line is written after it);
  /// nullptr if there is none.
  [[nodiscard]] std::exception_ptr failure() const;

  /// The figures of evaluations, and summary.json.
  [[nodiscard]] RunSummary& summary() { return summary_; }

 private:
  [[nodiscard]] bool on_console() const;
  [[nodiscard]] nlohmann::ordered_json interval_line(const StepMetrics& metrics, const WorkMeter::Work& work,
                                                     const std::vector<double>& mlm_sums, double seconds) const;
  /// `line` with the time of this moment.
  [[nodiscard]] nlohmann::ordered_json timed(nlohmann::ordered_json line) const;
  void start_interval(int64_t applied);
  /// Passes each sink to `call`, until one has failed.
  void to_sinks(const std::function<void(Sink& sink)>& call);
  /// Appends lines to run.log, with the time before the first.
  void record(const std::string& text);

  RunConfig config_;
  OptimizerStep& step_;
  const bool writes_;  // this is rank 0
  WorkMeter work_;     // of the current interval
  RunSummary summary_;
  double gemm_flops_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  const double init_time_;    // seconds since 1970
  mutable std::mutex files_;  // guards failure_ and run.log, to which the thread of console_ writes, too
  std::exception_ptr failure_;
  std::optional<AppendedFile> log_file_;
  std::vector<std::unique_ptr<Sink>> sinks_;  // of rank 0
  ConsoleSink* console_ = nullptr;            // of sinks_; nullptr: there is none
  int64_t layers_step_ = -1;                  // of the last write_layers()

  // The intervals of this process.
  std::chrono::steady_clock::time_point trains_since_ = begin_;
  double loss_sum_ = 0;  // over steps
  RunEnd total_;

  // The current interval.
  std::chrono::steady_clock::time_point interval_start_ = std::chrono::steady_clock::now();
  int64_t tried_ = 0, first_step_ = 0;  // steps
};

}  // namespace bert
