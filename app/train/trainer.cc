#include "app/train/trainer.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "app/distributed/environment.h"
#include "app/distributed/group_end.h"
#include "app/distributed/process_group.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/stop_signals.h"
#include "app/system/threads.h"
#include "app/train/device.h"
#include "app/train/evaluation.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "app/train/run_lock.h"
#include "app/train/run_state.h"
#include "app/train/sequence_log.h"
#include "app/train/training_step.h"
#include "data/io/files.h"
#include "data/loader/dataloader.h"

namespace bert {
namespace {

class Trainer {
 public:
  /// Sets `joined` as soon as the ranks have met.
  Trainer(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device,
          ProcessGroupPtr& joined);

  int run(bool allow_config_change);

 private:
  [[nodiscard]] int64_t last_step() const {
    return run_.config.stop_at_step > 0 ? std::min(run_.config.stop_at_step, run_.config.max_steps)
                                        : run_.config.max_steps;
  }
  /// The next step at which the host has work to do.
  [[nodiscard]] int64_t next_stop() const;
  int train();
  /// This rank's micro-batches of the next global batch, on the device.
  std::vector<PackedBatch> next_micro_batches();
  /// Prints how evenly tokens are dealt to the ranks. Every rank must call it.
  void report_balance(int64_t tokens);
  /// Prints the damaged rows that this process has replaced.
  void report_damage();
  /// Tries steps until `applied_` is `target` or a signal arrives.
  void advance_to(int64_t target);
  /// Throws ConfigError, after the log is written, if skipped steps show that the run cannot continue. All ranks agree
  /// because they have the same gradients.
  void stop_if_hopeless();
  /// True if a signal has arrived at any rank, or if metrics.jsonl cannot be written. The run then stops after a
  /// checkpoint. All ranks get the same answer. Called once in a step; with several ranks the answer is one step late,
  /// so no rank waits for it.
  [[nodiscard]] bool stop_requested();
  void evaluate();
  void save();

  DistributedEnvironment environment_;
  RunState run_;
  AgreedFlag stop_flag_;
  std::optional<UnigramModel> unigram_;
  std::optional<SequenceLog> sequence_log_;

  bool stopping_ = false, first_step_ = true;
  int64_t applied_ = 0, saved_ = -1;  // steps; saved_ is -1 without a checkpoint
  int64_t skipped_ = 0;               // skipped steps since the newest checkpoint
};

Trainer::Trainer(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device,
                 ProcessGroupPtr& joined)
    : environment_(environment), run_(config, environment, device, joined), stop_flag_(run_.group) {
  if (run_.validation) unigram_.emplace(*run_.train, run_.config.data.corrupted_rows == "skip");
}

int64_t Trainer::next_stop() const {
  int64_t next = last_step();
  for (const int64_t every : {run_.config.log_every, run_.config.checkpoint_every, run_.config.evaluate_every}) {
    if (every > 0) next = std::min(next, (applied_ / every + 1) * every);
  }
  return next;
}

bool Trainer::stop_requested() {
  if (!stopping_) stopping_ = stop_flag_.exchange(StopSignals::arrived() || run_.log.failure() != nullptr);
  return stopping_;
}

std::vector<PackedBatch> Trainer::next_micro_batches() {
  set_phase(Phase::kReadingData);
  std::vector<PackedBatch> micro_batches;
  int64_t tokens = 0;
  do {
    const PackedBatch batch = run_.loader.next();
    run_.log.add(batch, run_.loader);
    tokens += batch.num_tokens();
    if (sequence_log_) sequence_log_->add(batch, run_.loader);
    micro_batches.push_back(batch.to(run_.step.device()));
  } while (!run_.loader.between_steps());
  if (sequence_log_) sequence_log_->end_step();
  if (std::exchange(first_step_, false)) report_balance(tokens);
  return micro_batches;
}

void Trainer::report_balance(int64_t tokens) {
  if (!run_.group) return;
  torch::Tensor of_rank = torch::zeros({environment_.world_size}, torch::kDouble);
  of_rank[environment_.rank] = static_cast<double>(tokens);
  of_rank = run_.step.sum_over_ranks(of_rank);
  const double least = of_rank.min().item<double>(), most = of_rank.max().item<double>();
  run_.log.say(fmt::format("{} ranks, {:.0f} to {:.0f} tokens each in a step ({:.2f} % apart)", environment_.world_size,
                           least, most, 100 * (most / least - 1)));
}

void Trainer::report_damage() {
  const DamagedRows& damaged = run_.loader.damaged();
  if (damaged.descriptions.empty()) return;
  std::string message = fmt::format(
      "{} damaged rows: {} sequences took the next good row instead (data.corrupted_rows skip). Make or copy these "
      "files again:",
      damaged.descriptions.size(), damaged.sequences);
  constexpr size_t kMostShown = 10;
  size_t shown = 0;
  for (const std::string& description : damaged.descriptions) {
    if (shown++ == kMostShown) break;
    message += "\n  " + description;
  }
  if (shown > kMostShown) message += "\n  ... `bert data verify` names the others";
  run_.log.say(message);
}

void Trainer::advance_to(int64_t target) {
  while (applied_ < target && !stopping_) {
    const int64_t before = applied_, most = run_.config.amp.max_consecutive_skips;
    const int64_t left = most > 0 ? std::max<int64_t>(most - run_.step.consecutive_skips(), 1) : target;
    const int64_t attempts = std::min(target - applied_, left);
    int64_t tried = 0;
    while (tried < attempts && !stop_requested()) {
      const std::vector<PackedBatch> micro_batches = next_micro_batches();
      run_.step.run(micro_batches, run_.loader.micro_batches_of_step());
      fail_point(FailPoint::kTrainStep);
      run_.log.step_tried();
      ++tried;
    }
    applied_ = run_.step.applied_steps();  // the only wait for the device
    skipped_ += tried - (applied_ - before);
    if (tried > applied_ - before) stop_if_hopeless();
  }
}

void Trainer::stop_if_hopeless() {
  try {
    run_.step.check_progress();
  } catch (const ConfigError& error) {
    run_.log.write_interval(applied_);
    run_.log.finish();
    throw ConfigError("step " + std::to_string(applied_) + ": " + error.what() +
                      (saved_ < 0 ? " No checkpoint was written."
                                  : " The newest checkpoint is that of step " + std::to_string(saved_) + "."));
  }
}

void Trainer::evaluate() {
  const auto start = std::chrono::steady_clock::now();
  set_phase(Phase::kEvaluation);
  const EmaWeights ema(*run_.step.optimizer);
  // A signal does not abort the final evaluation: a finished run is not resumed, so the evaluation would never be
  // redone.
  const auto stop = [this] { return StopSignals::arrived() && applied_ < last_step(); };
  const auto evaluation = evaluate_pretraining(
      run_.step, run_.validation, *unigram_, run_.config.data.max_eval_examples, stop,
      lacks_masks(*run_.validation) ? dynamic_masking(run_.config, run_.tokenizer.get()) : std::nullopt);
  run_.log.leave_out(std::chrono::steady_clock::now() - start);
  if (evaluation) {
    run_.log.write_evaluation(applied_, *evaluation);
  } else {
    stopping_ = true;
    run_.log.say(fmt::format("step {}: a signal ended the evaluation", applied_));
  }
}

void Trainer::save() {
  if (saved_ == applied_ && skipped_ == 0) return;
  saved_ = applied_;
  skipped_ = 0;
  run_.save(applied_);
}

int Trainer::train() {
  const auto due = [&](int64_t every) { return every > 0 && applied_ % every == 0; };
  if (applied_ == 0 && run_.validation && run_.log.figures().empty()) evaluate();
  if (stopping_) save();
  run_.log.start(applied_, last_step());
  while (applied_ < last_step() && !stopping_) {
    advance_to(next_stop());
    if (due(run_.config.log_every) || applied_ == last_step() || stopping_) run_.log.write_interval(applied_);
    if (run_.validation && !stopping_ && (due(run_.config.evaluate_every) || applied_ == last_step())) evaluate();
    if (due(run_.config.checkpoint_every) || applied_ == last_step() || stopping_) save();
  }
  run_.log.finish();
  report_damage();
  const bool metrics_lost =
      run_.step.sum_over_ranks(int64_t{run_.log.failure() != nullptr}) > 0;  // all ranks end with the same code
  if (run_.log.failure()) {
    run_.log.say("stopped at step " + std::to_string(applied_) +
                 ", with a checkpoint, as metrics.jsonl cannot be written");
    std::rethrow_exception(run_.log.failure());
  }
  if (metrics_lost) return kIo;
  run_.log.write_summary(applied_);
  if (!stopping_ || applied_ == run_.config.max_steps) return kOk;
  run_.log.say("stopped by a signal at step " + std::to_string(applied_) +
               "; the checkpoint is saved, the same command goes on from it");
  return kPreempted;
}

int Trainer::run(bool allow_config_change) {
  saved_ = run_.restore(allow_config_change);
  applied_ = std::max<int64_t>(saved_, 0);
  run_.step.broadcast_parameters();
  if (applied_ == 0) {
    const bool left_out = !has_pairs(run_.objective) && run_.train->any_pairs();
    run_.log.say(fmt::format("objective {}{}", name_of_value(run_.objective),
                             left_out ? ": the labels of the sentence pairs in data.train are not used" : ""));
    run_.log.say(run_.config.optimizer.type + ", " + run_.step.parameter_report());
  }
  if (const int64_t tokens = run_.tokenizer->vocabulary().size(); tokens < run_.config.model.vocab_size) {
    run_.log.say("model.vocab_size " + std::to_string(run_.config.model.vocab_size) + ": " +
                 run_.config.data.vocab_file + " has " + std::to_string(tokens) +
                 " tokens, the rows after them are padding");
  }
  if (environment_.rank == 0) {
    AtomicFile file(run_.config.run_directory + "/config.json");
    file.write(to_json(run_.config));
    file.commit();
  }
  run_.log.open(saved_);
  if (applied_ >= last_step()) {
    run_.log.say("already finished: step " + std::to_string(applied_) + " of " + std::to_string(last_step()) + " in " +
                 run_.config.run_directory);
    run_.log.mend_summary(applied_);
    return kOk;
  }
  if (run_.config.data.log_sample_ids) {
    sequence_log_.emplace(run_.config.run_directory, environment_.rank, environment_.world_size,
                          run_.loader.state().consumed_sequences / run_.config.global_batch_size);
  }
  return train();
}

}  // namespace

int pretrain(const PretrainConfig& config, bool allow_config_change) {
  if (config.run_directory.empty())
    throw ConfigError("run_directory: is not set; say where the run keeps its checkpoints");
  const DistributedEnvironment environment = distributed_environment();
  use_threads(config.num_threads);
  std::optional<RunLock> lock;
  if (environment.rank == 0) lock.emplace(config.run_directory);
  const StopSignals signals;
  const c10::Device device = select_device(config.device, environment.local_rank);
  std::optional<Trainer> trainer;
  ProcessGroupPtr group;
  return with_orderly_end(group, [&] {
    trainer.emplace(config, environment, device, group);
    return trainer->run(allow_config_change);
  });
}

}  // namespace bert
