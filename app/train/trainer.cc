#include "app/train/trainer.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/device/device.h"
#include "app/distributed/environment.h"
#include "app/distributed/group_end.h"
#include "app/distributed/process_group.h"
#include "app/distributed/rank_zero.h"
#include "app/profile/phase_range.h"
#include "app/report/metrics.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/machine/threads.h"
#include "app/system/signals.h"
#include "app/system/stop_signals.h"
#include "app/system/torch_errors.h"
#include "app/train/agreed_interval.h"
#include "app/train/log/run_attempts.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_description.h"
#include "app/train/run_lock.h"
#include "app/train/run_profile.h"
#include "app/train/run_state.h"
#include "data/io/files.h"
#include "data/loader/global_step.h"

namespace bert {
namespace {

std::string path_of(const std::string& run_directory, int64_t rank) {
  return fmt::format("{}/samples-rank-{:05}.jsonl", run_directory, rank);
}

/// RUN/samples-rank-00000.jsonl: a line {"step", "samples", "examples"} for every step that the rank has tried, also a
/// skipped one. "samples" are the numbers of the rank's sequences in the run, "examples" the numbers of the examples
/// that they hold. Over all files the samples of a step follow those of the step before, for any number of ranks.
class SequenceLog {
 public:
  /// Continues after `steps` tried steps and drops later lines, which a killed run has left. Rank 0 drops them also
  /// from the files of ranks that no longer exist. Throws IoError.
  SequenceLog(const std::string& run_directory, int64_t rank, int64_t world_size, int64_t steps)
      : file_(path_of(run_directory, rank), steps), steps_(steps) {
    if (rank != 0) return;
    for (int64_t gone = world_size; std::filesystem::exists(path_of(run_directory, gone)); ++gone) {
      MetricsFile(path_of(run_directory, gone), steps);
    }
  }

  /// Writes the line of a step, whose micro-batches are on the CPU.
  void write(const GlobalStep& step) {
    std::vector<int64_t> sequences, examples;
    for (const PackedBatch& batch : step.micro_batches) {
      for (const int64_t sequence : sequence_numbers(batch)) sequences.push_back(sequence);
    }
    for (const ExampleOrder::Place& place : step.places) examples.push_back(place.example);
    file_.write({{"step", ++steps_}, {"samples", sequences}, {"examples", examples}});
  }

 private:
  MetricsFile file_;
  int64_t steps_;
};

class Trainer {
 public:
  /// `run` must outlive this object.
  explicit Trainer(RunState& run)
      : run_(run),
        config_(run.config()),
        profile_(run.config(), run.step().device(), run.step().rank() == 0),
        stop_flag_(run.group()),
        save_interval_(run.group(), config_.checkpoint_every_minutes),
        hours_(run.group(), 0),
        last_step_(config_.stop_at_step > 0 ? std::min(config_.stop_at_step, config_.max_steps) : config_.max_steps) {}

  int run(bool allow_config_change) {
    saved_ = run_.restore(allow_config_change);
    applied_ = std::max<int64_t>(saved_, 0);
    start_clock();
    if (run_.ended_early()) end_early();
    run_.step().broadcast_parameters();
    run_.announce(applied_);
    if (run_.step().rank() == 0) write_file(config_.run_directory + "/config.json", run_.config_json());
    run_.log().open(saved_);
    if (applied_ < last_step_) run_.log().say(describe_begin(run_, applied_, last_step_));
    if (applied_ >= last_step_) {
      run_.log().say("already finished: step " + std::to_string(applied_) + " of " + std::to_string(last_step_) +
                     " in " + config_.run_directory);
      if (run_.step().rank() == 0) run_.log().summary().mend(applied_);
      return kOk;
    }
    if (run_.logs_examples()) {
      sequence_log_.emplace(config_.run_directory, run_.step().rank(), run_.step().world_size(),
                            run_.loader().state().consumed_steps);
    }
    return train_and_note();
  }

 private:
  /// The next step at which the host has work to do.
  [[nodiscard]] int64_t next_stop() const {
    int64_t next = last_step_;
    for (const int64_t every : {config_.log_every, config_.checkpoint_every, config_.evaluate_every}) {
      if (every > 0) next = std::min(next, (applied_ / every + 1) * every);
    }
    return profile_.next_stop(applied_, next);
  }
  int train() {
    const auto due = [&](int64_t every) { return applied_ == last_step_ || (every > 0 && applied_ % every == 0); };
    run_.log().begin(facts_of(run_, applied_));
    if (run_.step().rank() == 0) attempts_.emplace(config_, run_.step(), applied_);
    if (run_.evaluation_due()) {
      evaluate();
      if (!stopping_) run_.save(applied_);  // with its figures
    } else if (applied_ == 0 && run_.evaluates_at_start() && run_.log().summary().figures().empty()) {
      evaluate();
    }
    if (stopping_) save();
    gemm_flops_ = measure_gemm(run_.step().device(), compute_dtype(config_.precision));
    run_.log().start(applied_, last_step_, gemm_flops_);
    if (run_.group() && !stopping_) stop_flag_.exchange(!can_read(1));  // for the answer to the first stop_requested()
    while (applied_ < last_step_ && !stopping_) {
      profile_.begin(applied_);
      const bool save_now = advance_to(next_stop()) || stopping_;
      end_profile();
      if (due(config_.log_every) || save_now) run_.log().write_interval(applied_);
      if (run_.evaluates() && due(config_.evaluate_every)) stopping_ ? run_.set_evaluation_due(true) : evaluate();
      if (due(config_.checkpoint_every) || save_now || stopping_) save();
    }
    return end();
  }
  /// train(), and then the line of attempts.jsonl about its end.
  int train_and_note() {
    try {
      const int code = train();
      const bool early = !ended_early_ && applied_ < max_steps_;
      const int signal = StopSignals::first();
      attempt_ended(code, code == kPreempted ? (signal != 0 ? signal_name(signal) : "a signal at another rank")
                          : early            ? "stopped at stop_at_step"
                                             : "finished");
      return code;
    } catch (const c10::Error& error) {
      attempt_ended(is_out_of_memory(error) ? kOutOfMemory : kInternal, first_line(error.what_without_backtrace()));
      throw;
    } catch (...) {
      std::string type, message;
      const int code = exit_code_of_current_exception(type, message);
      attempt_ended(code, first_line(message));
      throw;
    }
  }
  /// What follows the last step: the last lines of the log, and the exit code.
  int end();
  /// This rank's part of the next step.
  GlobalStep next_step() {
    GlobalStep step = run_.loader().next_step();
    run_.log().add(step);
    if (sequence_log_) sequence_log_->write(step);
    damaged_.add(step.damaged);
    if (std::exchange(first_step_, false)) report_balance(step.num_tokens());
    return step;
  }
  /// Prints how evenly tokens are dealt to the ranks. Every rank must call it.
  void report_balance(int64_t tokens) {
    if (!run_.group()) return;
    torch::Tensor of_rank = torch::zeros({run_.step().world_size()}, torch::kDouble);
    of_rank[run_.step().rank()] = static_cast<double>(tokens);
    of_rank = run_.step().sum_over_ranks(of_rank);
    const double least = of_rank.min().item<double>(), most = of_rank.max().item<double>();
    run_.log().say(fmt::format("{} ranks, {:.0f} to {:.0f} tokens each in a step ({:.2f} % apart)",
                               run_.step().world_size(), least, most, 100 * (most / least - 1)));
  }
  /// Prints the damaged rows that this process has replaced.
  void report_damage() {
    if (damaged_.descriptions.empty()) return;
    std::string message = fmt::format(
        "{} damaged rows: {} sequences took the next good row instead (data.corrupted_rows skip). Make or copy these "
        "files again:",
        damaged_.descriptions.size(), damaged_.sequences);
    constexpr size_t kMostShown = 10;
    size_t shown = 0;
    for (const std::string& description : damaged_.descriptions) {
      if (shown++ == kMostShown) break;
      message += "\n  " + description;
    }
    if (shown > kMostShown) message += "\n  ... `bert data verify` names the others";
    run_.log().say(message);
  }
  /// Tries steps until `applied_` is `target`, a signal arrives, or it is time for a checkpoint, when it returns true.
  bool advance_to(int64_t target) {
    while (applied_ < target && !stopping_) {
      const int64_t before = applied_, most = config_.amp.max_consecutive_skips;
      const int64_t left = most > 0 ? std::max<int64_t>(most - run_.step().consecutive_skips(), 1) : target;
      const int64_t attempts = std::min(target - applied_, left);
      int64_t tried = 0;
      bool save_now = false, hours_ended = false;
      while (tried < attempts && !(hours_ended = hours_.ended()) && !(save_now = save_interval_.ended()) &&
             !stop_requested()) {
        run_.step().run(next_step());
        fail_point(FailPoint::kTrainStep);
        run_.log().step_tried();
        ++tried;
      }
      applied_ = run_.step().applied_steps();  // the only wait for the device
      skipped_ += tried - (applied_ - before);
      if (tried > applied_ - before) stop_if_hopeless();
      if (hours_ended) {
        clock_decides();
        target = std::min(target, last_step_);
      }
      if (save_now) return true;
    }
    return false;
  }
  /// Throws ConfigError, after the log is written, if skipped steps show that the run cannot continue. All ranks agree
  /// because they have the same gradients.
  void stop_if_hopeless() {
    try {
      run_.step().check_progress();
    } catch (const ConfigError& error) {
      run_.log().write_interval(applied_);
      run_.log().finish();
      throw ConfigError("step " + std::to_string(applied_) + ": " + error.what() +
                        (saved_ < 0 ? " No checkpoint was written."
                                    : " The newest checkpoint is that of step " + std::to_string(saved_) + "."));
    }
  }
  /// True if the next `steps` steps can be read in this rank: Note [Steps taken ahead] in look_ahead_loader.h.
  [[nodiscard]] bool can_read(size_t steps) {
    const PhaseRange phase(Phase::kReadingData);
    return run_.loader().look_ahead(steps);
  }
  /// True if a signal has arrived at any rank, if the numbers cannot be written, or if any rank cannot read its rows of
  /// the next step. The run then stops after a checkpoint. All ranks get the same answer. Called once before each step;
  /// with several ranks the answer is that to the call before, so no rank waits for it.
  [[nodiscard]] bool stop_requested() {
    const size_t ahead = run_.group() ? 2 : 1;  // the answer to this call comes before the step after the next one
    if (!stopping_) {
      stopping_ = stop_flag_.exchange(StopSignals::arrived() || run_.log().failure() != nullptr || !can_read(ahead));
    }
    return stopping_;
  }
  /// Throws DataError on every rank, with the message of the first that has one, if any cannot read its rows of the next
  /// step.
  void end_if_data_fails() {
    const std::exception_ptr failure = run_.loader().failure();
    torch::Tensor failed = torch::zeros({run_.step().world_size()}, torch::kInt64);
    failed[run_.step().rank()] = int64_t{failure != nullptr};
    failed = run_.step().sum_over_ranks(failed);
    if (failed.sum().item<int64_t>() == 0) return;
    run_.log().say(
        fmt::format("stopped at step {}, with a checkpoint, as the data of the next step cannot be read", applied_));
    on_rank(run_.group(),
            {.rank = static_cast<int>(failed.argmax().item<int64_t>()),
             .name = "error of the data",
             .timeout_seconds = config_.distributed.timeout_seconds},
            [&]() -> std::string { std::rethrow_exception(failure); });
  }
  void evaluate() {
    const auto start = std::chrono::steady_clock::now();
    const PhaseRange phase(Phase::kEvaluation);
    const bool last = applied_ >= last_step_;
    run_.log().evaluation_begins(applied_);
    std::optional<EvaluationReport> evaluation;
    {
      const EmaWeights ema(*run_.step().optimizer);
      // A signal does not abort the final evaluation: a finished run is not resumed, so the evaluation would never be
      // redone.
      evaluation = run_.evaluate(applied_, last, [last] { return StopSignals::arrived() && !last; });
    }
    run_.log().leave_out(std::chrono::steady_clock::now() - start);
    run_.set_evaluation_due(!evaluation);
    if (!evaluation) {
      stopping_ = true;
      run_.log().say(fmt::format("step {}: a signal ended the evaluation", applied_));
      return;
    }
    run_.log().write_evaluation(applied_, *evaluation);
    run_.evaluated(applied_);
    run_.log().write_layers(applied_);
    if (run_.ended_early()) end_early();
  }
  void save() {
    save_interval_.restart();
    if (saved_ == applied_ && skipped_ == 0) return;
    saved_ = applied_;
    skipped_ = 0;
    run_.save(applied_);
  }
  /// The run needs no step after this one: RunState::ended_early().
  void end_early() {
    ended_early_ = true;
    last_step_ = applied_;
  }
  /// The share of max_hours that the decay takes.
  [[nodiscard]] double decay_share() const {
    return config_.schedule.type == ScheduleType::kWsd ? config_.schedule.decay_proportion : 0;
  }
  /// The share of max_hours that the warm-up takes, while the number of its steps is not known.
  [[nodiscard]] double unknown_warmup_share() const {
    return run_.clock().warmup_end == 0 ? config_.schedule.warmup_proportion : 0;
  }
  /// The last step is that of a decay which a checkpoint says; else the clock runs to its next decision: about the
  /// steps of the warm-up, or the begin of the decay.
  void start_clock() {
    constexpr double kMeasured = 0.1;  // of the warm-up: steps that tell the time of a step, at rates next to 0
    if (config_.max_hours == 0) return;
    const RunClock clock = run_.clock();
    if (clock.decay_end > 0) return end_at(clock.decay_end);
    const double seconds = 3600 * config_.max_hours, warmup = unknown_warmup_share();
    if (decay_share() == 0 && clock.seconds >= seconds) return end_early();
    const double share = warmup > 0 ? kMeasured * warmup : 1 - decay_share();
    hours_.restart(std::max(seconds * share - run_.seconds(), 1e-6) / 60);
  }
  void clock_decides() {
    const double share = unknown_warmup_share();
    if (share == 0) return begin_decay();
    if (applied_ == 0) return start_clock();  // all steps were skipped
    const double seconds = std::stod(on_rank_zero(run_.group(), "read the clock", config_.distributed.timeout_seconds,
                                                  [this] { return fmt::format("{}", run_.seconds()); }));
    const double by_clock = static_cast<double>(applied_) * share * 3600 * config_.max_hours / seconds;
    const double steps = std::min(by_clock, share * static_cast<double>(config_.max_steps));
    const int64_t end = std::max<int64_t>(applied_, std::llround(steps));
    run_.log().say(fmt::format("step {}: the warm-up ends at step {}, its share of max_hours {:g}", applied_, end,
                               config_.max_hours));
    run_.set_warmup(end);
    start_clock();
  }
  /// The clock has come to the begin of the decay. Its steps are to take their share of the time, as long as a step
  /// takes what it has taken so far.
  void begin_decay() {
    hours_.stop();
    const double share = decay_share();
    if (share == 0) {
      run_.log().say(fmt::format("step {}: max_hours {:g} are over", applied_, config_.max_hours));
      return end_early();
    }
    const auto stable = static_cast<double>(applied_ - run_.clock().first_step);
    const int64_t end = applied_ + std::max<int64_t>(1, std::llround(stable * share / (1 - share)));
    if (end >= config_.max_steps) return;  // the decay to max_steps has begun
    run_.log().say(fmt::format("step {}: the decay begins, to step {}, for the rest of max_hours {:g}", applied_, end,
                               config_.max_hours));
    run_.set_decay(applied_, end);
    end_at(end);
  }
  void end_at(int64_t step) {
    last_step_ = std::min(last_step_, max_steps_ = step);
    run_.log().set_max_steps(step);
  }
  /// Writes the profile, and says what it found, if its steps are over.
  void end_profile() {
    const auto start = std::chrono::steady_clock::now();
    const std::optional<std::string> text = profile_.end(applied_, stopping_ || applied_ == last_step_, gemm_flops_);
    if (!text) return;
    run_.log().leave_out(std::chrono::steady_clock::now() - start);
    run_.log().say(*text);
  }

  void attempt_ended(int exit_code, const std::string& reason) {
    if (attempts_) attempts_->ended(applied_, exit_code, reason);
  }

  RunState& run_;
  const RunConfig& config_;
  RunProfile profile_;
  std::optional<RunAttempts> attempts_;  // of rank 0, from the begin of the training
  double gemm_flops_ = 0;                // measure_gemm()
  AgreedFlag stop_flag_;
  AgreedInterval save_interval_, hours_;
  std::optional<SequenceLog> sequence_log_;

  bool stopping_ = false, ended_early_ = false;
  int64_t max_steps_ = config_.max_steps;
  int64_t last_step_;
  int64_t applied_ = 0, saved_ = -1;  // steps; saved_ is -1 without a checkpoint
  int64_t skipped_ = 0;               // skipped steps since the newest checkpoint
  bool first_step_ = true;            // next_step() has not been called
  DamagedRows damaged_;               // of this process's steps
};

int Trainer::end() {
  run_.log().write_layers(applied_);
  run_.log().finish();
  report_damage();
  if (const std::string graphs = run_.step().graph_report(); !graphs.empty()) run_.log().note(graphs);
  if (stopping_ && applied_ < last_step_) end_if_data_fails();
  const bool finished = !stopping_ || applied_ == max_steps_ || ended_early_;
  run_.log().end(applied_, finished);
  const bool metrics_lost =
      run_.step().sum_over_ranks(int64_t{run_.log().failure() != nullptr}) > 0;  // all ranks end with the same code
  if (run_.log().failure()) {
    run_.log().say("stopped at step " + std::to_string(applied_) +
                   ", with a checkpoint, as a file of its numbers cannot be written");
    std::rethrow_exception(run_.log().failure());
  }
  if (metrics_lost) return kIo;
  run_.check_directory();
  if (run_.step().rank() == 0) run_.log().summary().write(applied_);
  if (finished) {
    run_.log().say(describe_end(run_, applied_));
    return kOk;
  }
  run_.log().say("stopped by a signal at step " + std::to_string(applied_) +
                 "; the checkpoint is saved, the same command goes on from it");
  return kPreempted;
}

}  // namespace

int train(const RunConfig& config, const RunMaker& make_run, bool allow_config_change) {
  if (config.run_directory.empty())
    throw ConfigError("run_directory: is not set; say where the run keeps its checkpoints");
  const DistributedEnvironment environment = distributed_environment();
  use_threads(config.num_threads);
  std::optional<RunLock> lock;
  if (environment.rank == 0) lock.emplace(config.run_directory);
  const StopSignals signals;
  const c10::Device device = select_device(config.device, environment.local_rank);
  std::unique_ptr<RunState> run;
  std::optional<Trainer> trainer;
  ProcessGroupPtr group;
  return with_orderly_end(group, [&] {
    group = join(config, device);
    run = make_run({.device = device, .group = group, .local_size = environment.local_size});
    if (lock) run->set_lock(*lock);
    trainer.emplace(*run);
    return trainer->run(allow_config_change);
  });
}

}  // namespace bert
