#include "app/train/trainer.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "app/distributed/environment.h"
#include "app/distributed/process_group.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/system/fail_point.h"
#include "app/system/stop_signals.h"
#include "app/system/threads.h"
#include "app/train/device.h"
#include "app/train/evaluation.h"
#include "app/train/rank_agreement.h"
#include "app/train/run_checkpoint.h"
#include "app/train/run_inputs.h"
#include "app/train/run_lock.h"
#include "app/train/run_log.h"
#include "app/train/sample_log.h"
#include "app/train/training_step.h"
#include "data/formats/shard.h"
#include "data/io/files.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {
namespace {

DataLoaderConfig loader_config(const PretrainConfig& config, const DistributedEnvironment& environment,
                               bool pin_memory) {
  check_micro_batches(config, environment.world_size);
  DataLoaderConfig loader;
  loader.micro_batch_size = config.micro_batch_size;
  loader.global_batch_size = config.global_batch_size;
  loader.seed = static_cast<uint64_t>(config.seed);
  loader.rank = environment.rank;
  loader.world_size = environment.world_size;
  loader.pin_memory = pin_memory;
  return loader;
}

class Trainer {
 public:
  Trainer(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device);

  int run(bool allow_config_change);

 private:
  [[nodiscard]] RunParts parts() {
    return {.config = config_,
            .tokenizer = *tokenizer_,
            .data = data_,
            .group = group_,
            .step = step_,
            .loader = *loader_,
            .log = log_};
  }
  [[nodiscard]] int64_t last_step() const {
    return config_.stop_at_step > 0 ? std::min(config_.stop_at_step, config_.max_steps) : config_.max_steps;
  }
  /// The first step after `applied_` at which the host has something to do.
  [[nodiscard]] int64_t next_stop() const;
  int train();
  /// This rank's share of the next global batch, on the device.
  std::vector<PackedBatch> next_micro_batches();
  /// Says how evenly the ranks' packed tokens are dealt; every rank calls it.
  void report_balance(int64_t tokens);
  /// Tries steps until `applied_` is `target` or a signal arrives.
  void advance_to(int64_t target);
  /// Throws ConfigError, with the log up to date, when skipped steps say that the run cannot go on. All ranks agree, as
  /// they have the same gradients.
  void stop_if_hopeless();
  /// Whether a signal has arrived at any rank, or metrics.jsonl cannot be written: the run then stops after a
  /// checkpoint. All ranks agree. Called once a step; several ranks learn of it one step late, so that none waits.
  [[nodiscard]] bool stop_requested();
  void evaluate();
  void save();

  PretrainConfig config_;
  DistributedEnvironment environment_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ProcessGroupPtr group_;
  AgreedFlag stop_flag_;
  TrainingStep step_;
  RunLog log_;
  std::map<std::string, DataIdentity> data_;  // of the shards that are open
  std::unique_ptr<PretrainingDataLoader> loader_;
  std::shared_ptr<const PretrainingShards> validation_;
  std::optional<UnigramModel> unigram_;
  std::optional<SampleLog> sample_log_;

  bool stopping_ = false, first_step_ = true;
  int64_t applied_ = 0, saved_ = -1;  // steps; -1: there is no checkpoint
  int64_t skipped_ = 0;               // since the newest checkpoint
};

Trainer::Trainer(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device)
    : config_(config),
      environment_(environment),
      tokenizer_(load_tokenizer(config)),
      group_(expect_same_config(init_process_group({.backend = config.distributed.backend,
                                                    .init_method = config.distributed.init_method,
                                                    .timeout_seconds = config.distributed.timeout_seconds,
                                                    .cuda = device.is_cuda(),
                                                    .debug = config.distributed.debug}),
                                config)),
      stop_flag_(group_),
      step_(config, device, group_),
      log_(config, step_) {
  const auto train = open_shards(config, "train", *tokenizer_);
  data_["train"] = identity_of(*train);
  loader_ = std::make_unique<PretrainingDataLoader>(train, loader_config(config, environment, device.is_cuda()));
  if (config.evaluate_every > 0) {
    validation_ = open_shards(config, "validation", *tokenizer_);
    data_["validation"] = identity_of(*validation_);
    unigram_.emplace(*train);
  }
  expect_same_data(group_, data_, config.distributed.timeout_seconds);
}

int64_t Trainer::next_stop() const {
  int64_t next = last_step();
  for (const int64_t every : {config_.log_every, config_.checkpoint_every, config_.evaluate_every}) {
    if (every > 0) next = std::min(next, (applied_ / every + 1) * every);
  }
  return next;
}

bool Trainer::stop_requested() {
  if (!stopping_) stopping_ = stop_flag_.exchange(StopSignals::arrived() || log_.failure() != nullptr);
  return stopping_;
}

std::vector<PackedBatch> Trainer::next_micro_batches() {
  set_phase(Phase::kReadingData);
  std::vector<PackedBatch> micro_batches;
  int64_t tokens = 0;
  for (int64_t micro = 0; micro < loader_->micro_batches_per_step(); ++micro) {
    const PackedBatch batch = loader_->next();
    log_.add(batch);
    tokens += batch.num_tokens();
    if (sample_log_) sample_log_->add(batch, *loader_);
    micro_batches.push_back(batch.to(step_.device()));
  }
  if (sample_log_) sample_log_->end_step();
  if (std::exchange(first_step_, false)) report_balance(tokens);
  return micro_batches;
}

void Trainer::report_balance(int64_t tokens) {
  if (!group_) return;
  torch::Tensor of_rank = torch::zeros({environment_.world_size}, torch::kDouble);
  of_rank[environment_.rank] = static_cast<double>(tokens);
  of_rank = step_.sum_over_ranks(of_rank);
  const double least = of_rank.min().item<double>(), most = of_rank.max().item<double>();
  log_.say(fmt::format("{} ranks, {:.0f} to {:.0f} tokens each in a step ({:.2f} % apart)", environment_.world_size,
                       least, most, 100 * (most / least - 1)));
}

void Trainer::advance_to(int64_t target) {
  while (applied_ < target && !stopping_) {
    const int64_t before = applied_, most = config_.amp.max_consecutive_skips;
    const int64_t left = most > 0 ? std::max<int64_t>(most - step_.consecutive_skips(), 1) : target;
    const int64_t attempts = std::min(target - applied_, left);
    int64_t tried = 0;
    while (tried < attempts && !stop_requested()) {
      step_.run(next_micro_batches(), config_.global_batch_size / config_.micro_batch_size);
      fail_point(FailPoint::kTrainStep);
      log_.step_tried();
      ++tried;
    }
    applied_ = step_.applied_steps();  // the one wait for the device
    skipped_ += tried - (applied_ - before);
    if (tried > applied_ - before) stop_if_hopeless();
  }
}

void Trainer::stop_if_hopeless() {
  try {
    step_.check_progress();
  } catch (const ConfigError& error) {
    log_.write_interval(applied_);
    log_.finish();
    throw ConfigError("step " + std::to_string(applied_) + ": " + error.what() +
                      (saved_ < 0 ? " No checkpoint was written."
                                  : " The newest checkpoint is that of step " + std::to_string(saved_) + "."));
  }
}

void Trainer::evaluate() {
  const auto start = std::chrono::steady_clock::now();
  set_phase(Phase::kEvaluation);
  const EmaWeights ema(*step_.optimizer);
  // The last one is finished: nobody would come back for it.
  const auto stop = [this] { return StopSignals::arrived() && applied_ < last_step(); };
  const auto evaluation = evaluate_pretraining(step_, validation_, *unigram_, config_.data.max_eval_examples, stop);
  log_.leave_out(std::chrono::steady_clock::now() - start);
  if (evaluation) {
    log_.write_evaluation(applied_, *evaluation);
  } else {
    stopping_ = true;
    log_.say(fmt::format("step {}: a signal ended the evaluation", applied_));
  }
}

void Trainer::save() {
  if (saved_ == applied_ && skipped_ == 0) return;
  saved_ = applied_;
  skipped_ = 0;
  save_run(parts(), applied_);
}

int Trainer::train() {
  const auto due = [&](int64_t every) { return every > 0 && applied_ % every == 0; };
  if (applied_ == 0 && validation_ && log_.figures().empty()) evaluate();
  if (stopping_) save();
  log_.start(applied_, last_step());
  while (applied_ < last_step() && !stopping_) {
    advance_to(next_stop());
    if (due(config_.log_every) || applied_ == last_step() || stopping_) log_.write_interval(applied_);
    if (validation_ && !stopping_ && (due(config_.evaluate_every) || applied_ == last_step())) evaluate();
    if (due(config_.checkpoint_every) || applied_ == last_step() || stopping_) save();
  }
  log_.finish();
  const bool metrics_lost = step_.sum_over_ranks(int64_t{log_.failure() != nullptr}) > 0;  // all ranks end alike
  if (log_.failure()) {
    log_.say("stopped at step " + std::to_string(applied_) + ", with a checkpoint, as metrics.jsonl cannot be written");
    std::rethrow_exception(log_.failure());
  }
  if (metrics_lost) return kIo;
  log_.write_summary(applied_);
  if (!stopping_ || applied_ == config_.max_steps) return kOk;
  log_.say("stopped by a signal at step " + std::to_string(applied_) +
           "; the checkpoint is saved, the same command goes on from it");
  return kPreempted;
}

int Trainer::run(bool allow_config_change) {
  saved_ = restore_run(parts(), allow_config_change);
  applied_ = std::max<int64_t>(saved_, 0);
  step_.broadcast_parameters();
  if (applied_ == 0) log_.say(config_.optimizer.type + ", " + step_.parameter_report());
  if (const int64_t tokens = tokenizer_->vocabulary().size(); tokens < config_.model.vocab_size) {
    log_.say("model.vocab_size " + std::to_string(config_.model.vocab_size) + ": " + config_.data.vocab_file + " has " +
             std::to_string(tokens) + " tokens, the rows after them are padding");
  }
  if (environment_.rank == 0) {
    AtomicFile file(config_.run_directory + "/config.json");
    file.write(to_json(config_));
    file.commit();
  }
  log_.open(saved_);
  if (applied_ >= last_step()) {
    log_.say("already finished: step " + std::to_string(applied_) + " of " + std::to_string(last_step()) + " in " +
             config_.run_directory);
    log_.mend_summary(applied_);
    return kOk;
  }
  if (config_.data.log_sample_ids) {
    sample_log_.emplace(config_.run_directory, environment_.rank, environment_.world_size,
                        loader_->state().consumed_sequences / config_.global_batch_size);
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
  return Trainer(config, environment, select_device(config.device, environment.local_rank)).run(allow_config_change);
}

}  // namespace bert
