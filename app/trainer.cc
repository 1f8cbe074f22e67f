#include "app/trainer.h"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "app/checkpoint.h"
#include "app/checkpoint_fit.h"
#include "app/command_line.h"
#include "app/distributed_environment.h"
#include "app/error_report.h"
#include "app/evaluation.h"
#include "app/exit_codes.h"
#include "app/fail_point.h"
#include "app/metrics.h"
#include "app/predictor.h"
#include "app/process_group.h"
#include "app/run_inputs.h"
#include "app/run_lock.h"
#include "app/sample_log.h"
#include "app/stop_signals.h"
#include "app/threads.h"
#include "app/training_step.h"
#include "data/dataloader.h"
#include "data/error.h"
#include "data/files.h"
#include "data/shard.h"
#include "data/tokenizer.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

DataLoaderConfig loader_config(const PretrainConfig& config, const DistributedEnvironment& environment,
                               bool pin_memory) {
  const int64_t micro_batches = config.global_batch_size / config.micro_batch_size;
  if (micro_batches < environment.world_size) {
    throw ConfigError("global_batch_size " + std::to_string(config.global_batch_size) + ": has " +
                      std::to_string(micro_batches) + " micro-batches of micro_batch_size " +
                      std::to_string(config.micro_batch_size) + " for " + std::to_string(environment.world_size) +
                      " ranks; expected at least one for each");
  }
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
  [[nodiscard]] bool chief() const { return environment_.rank == 0; }
  [[nodiscard]] int64_t last_step() const {
    return config_.stop_at_step > 0 ? std::min(config_.stop_at_step, config_.max_steps) : config_.max_steps;
  }
  /// The first step after `applied_` at which the host has something to do.
  [[nodiscard]] int64_t next_stop() const;
  void resume(const std::string& directory, bool allow_config_change);
  void start_from(const std::string& directory);
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
  /// Whether a signal has arrived at any rank; all ranks agree. Called once a step; several ranks learn of it one step
  /// late, so that none waits.
  [[nodiscard]] bool stop_requested();
  void log();
  void evaluate();
  void save();
  /// A line of metrics.jsonl. When it cannot be written the run stops after a checkpoint, as by a signal, and then
  /// throws what was in the way.
  void write_metrics(const nlohmann::ordered_json& line);
  void write_summary();
  void say(const std::string& text) {
    if (chief()) progress_ ? progress_->message(text) : static_cast<void>(std::fprintf(stderr, "%s\n", text.c_str()));
  }

  PretrainConfig config_;
  DistributedEnvironment environment_;
  std::unique_ptr<Tokenizer> tokenizer_;
  DataLoaderConfig loader_config_;
  ProcessGroupPtr group_;
  AgreedFlag stop_flag_;
  TrainingStep step_;
  std::map<std::string, DataIdentity> data_;  // of the shards that are open
  std::shared_ptr<const PretrainingShards> validation_;
  std::optional<UnigramModel> unigram_;
  std::unique_ptr<PretrainingDataLoader> loader_;
  std::optional<MetricsFile> metrics_file_;
  std::exception_ptr metrics_failure_;
  std::optional<Progress> progress_;
  FlopCounter flops_;
  double gemm_flops_;

  std::optional<SampleLog> sample_log_;

  bool stopping_ = false, first_step_ = true;
  int64_t applied_ = 0, saved_ = -1;
  std::map<std::string, double> figures_;  // of the last evaluation and of step 0, by their names in summary.json

  double sequences_per_second_ = 0;  // of the last log interval; not in figures_, which a checkpoint keeps

  // Of the log interval.
  Clock::time_point interval_start_ = Clock::now();
  int64_t tried_ = 0, interval_first_step_ = 0, tokens_ = 0;
  double flops_done_ = 0;
};

Trainer::Trainer(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device)
    : config_(config),
      environment_(environment),
      tokenizer_(load_tokenizer(config)),
      loader_config_(loader_config(config, environment, device.is_cuda())),
      group_(init_process_group({.backend = config.distributed.backend,
                                 .init_method = config.distributed.init_method,
                                 .timeout_seconds = config.distributed.timeout_seconds,
                                 .cuda = device.is_cuda(),
                                 .debug = config.distributed.debug})),
      stop_flag_(group_),
      step_(config, device, group_),
      flops_(config.model),
      gemm_flops_(measure_gemm(device, compute_dtype(parse_precision(config.precision)))) {
  const auto train = open_shards(config, "train", *tokenizer_);
  data_["train"] = identity_of(*train);
  loader_ = std::make_unique<PretrainingDataLoader>(train, loader_config_);
  if (config.evaluate_every > 0) {
    validation_ = open_shards(config, "validation", *tokenizer_);
    data_["validation"] = identity_of(*validation_);
    unigram_.emplace(*train);
  }
}

int64_t Trainer::next_stop() const {
  int64_t next = last_step();
  for (const int64_t every : {config_.log_every, config_.checkpoint_every, config_.evaluate_every}) {
    if (every > 0) next = std::min(next, (applied_ / every + 1) * every);
  }
  return next;
}

void Trainer::resume(const std::string& directory, bool allow_config_change) {
  const Checkpoint checkpoint = load_checkpoint(directory);
  const CheckpointState& state = checkpoint.state;
  std::vector<std::string> differences = compare_data(state.data, data_);
  for (const ConfigDifference& d :
       compare_for_resume(parse_pretrain_config(state.config, directory + "/state.json"), config_)) {
    differences.push_back(d.pointer + ": was " + d.before + ", now " + d.after);
  }
  if (!differences.empty() && !allow_config_change) {
    std::string message = "this run differs from that of " + directory + ":";
    for (const std::string& difference : differences) message += "\n  " + difference;
    throw ConfigError(message + "\nuse another run_directory, or --allow-config-change");
  }
  fit_checkpoint(directory, state, config_, {"/model/", "/precision", "/optimizer/"}, [&] {
    load_state_dict(*step_.model, checkpoint.model);
    step_.optimizer->load_state_dict(checkpoint.optimizer);
  });
  StateDict scaler;
  scaler.insert("scale", torch::tensor(state.loss_scale));
  scaler.insert("growth_tracker", torch::tensor(state.growth_tracker));
  step_.scaler.load_state_dict(scaler);
  loader_->restore({.seed = static_cast<uint64_t>(state.sampler_seed), .consumed_samples = state.consumed_samples});
  figures_ = state.metrics;
  applied_ = saved_ = state.step;
  say("continuing from " + directory);
}

void Trainer::start_from(const std::string& path) {
  const std::string directory = resolve_checkpoint(path);
  const Checkpoint checkpoint = [&] {
    try {
      return load_checkpoint(directory);
    } catch (const InputMissing& error) {
      throw InputMissing(std::string("initial_checkpoint: ") + error.what() + "; name a run directory or a checkpoint");
    }
  }();
  if (checkpoint.state.vocabulary != tokenizer_->vocabulary().tokens()) {
    throw ConfigError("initial_checkpoint: " + directory + " was trained with another vocabulary than " +
                      config_.data.vocab_file);
  }
  fit_checkpoint("initial_checkpoint: " + directory, checkpoint.state, config_, {"/model/"}, [&] {
    step_.start_phase({.weights = checkpoint.model,
                       .optimizer_state = checkpoint.optimizer,
                       .keep_moments = config_.initial_optimizer_state});
  });
  say("starting from the weights" + std::string(config_.initial_optimizer_state ? " and moments" : "") + " of " +
      directory);
}

bool Trainer::stop_requested() {
  if (!stopping_) stopping_ = stop_flag_.exchange(StopSignals::arrived() || metrics_failure_ != nullptr);
  return stopping_;
}

std::vector<PackedBatch> Trainer::next_micro_batches() {
  set_phase("reading data");
  std::vector<PackedBatch> micro_batches;
  int64_t tokens = 0;
  for (int64_t micro = 0; micro < loader_->micro_batches_per_step(); ++micro) {
    const PackedBatch batch = loader_->next();
    const auto* ends = batch.cu_seqlens.const_data_ptr<int32_t>();
    for (int64_t row = 0; row < batch.num_sequences(); ++row)
      flops_done_ += 3 * flops_.forward_of_sequence(ends[row + 1] - ends[row]);
    flops_done_ += 3 * flops_.forward_of_heads(batch.num_masked(), batch.num_sequences());
    tokens += batch.num_tokens();
    if (sample_log_) sample_log_->add(batch, *loader_);
    micro_batches.push_back(to_device(batch, step_.device()));
  }
  if (sample_log_) sample_log_->end_step();
  if (std::exchange(first_step_, false)) report_balance(tokens);
  tokens_ += tokens;
  return micro_batches;
}

void Trainer::report_balance(int64_t tokens) {
  if (!group_) return;
  torch::Tensor of_rank = torch::zeros({environment_.world_size}, torch::kDouble);
  of_rank[environment_.rank] = static_cast<double>(tokens);
  of_rank = step_.sum_over_ranks(of_rank);
  const double least = of_rank.min().item<double>(), most = of_rank.max().item<double>();
  char text[120];
  std::snprintf(text, sizeof text, "%d ranks, %.0f to %.0f tokens each in a step (%.2f %% apart)",
                static_cast<int>(environment_.world_size), least, most, 100 * (most / least - 1));
  say(text);
}

void Trainer::advance_to(int64_t target) {
  while (applied_ < target && !stopping_) {
    const int64_t before = applied_, tried_before = tried_, most = config_.amp.max_consecutive_skips;
    const int64_t attempts = most > 0 ? std::min(target - applied_, most) : target - applied_;
    for (int64_t attempt = attempts; attempt > 0 && !stop_requested(); --attempt) {
      step_.run(next_micro_batches(), config_.global_batch_size / config_.micro_batch_size);
      fail_point("train.step");
      ++tried_;
    }
    applied_ = step_.applied_steps();  // the one wait for the device
    if (tried_ - tried_before > applied_ - before) stop_if_hopeless();
  }
}

void Trainer::stop_if_hopeless() {
  try {
    step_.check_progress();
  } catch (const ConfigError& error) {
    log();
    if (progress_) progress_->finish();
    throw ConfigError("step " + std::to_string(applied_) + ": " + error.what() +
                      (saved_ < 0 ? " No checkpoint was written."
                                  : " The newest checkpoint is that of step " + std::to_string(saved_) + "."));
  }
}

void Trainer::log() {
  if (tried_ == 0) return;
  const double seconds = seconds_since(interval_start_), ranks = static_cast<double>(environment_.world_size);
  const TrainingStep::MeanLoss loss = step_.take_mean_loss();
  StepMetrics m;
  m.step = applied_;
  m.max_steps = config_.max_steps;
  m.skipped = tried_ - (applied_ - interval_first_step_);
  m.mlm_loss = loss.mlm;
  m.nsp_loss = loss.nsp;
  m.loss = loss.mlm + loss.nsp;
  m.learning_rate = step_.last_learning_rate();
  m.grad_norm = step_.optimizer->grad_norm().item<double>();
  m.loss_scale = step_.scaler.enabled() ? step_.scaler.current_scale().item<double>() : 1.0;
  m.sequences_per_second = static_cast<double>(tried_ * config_.global_batch_size) / seconds;
  const torch::Tensor work =
      step_.sum_over_ranks(torch::tensor({static_cast<double>(tokens_), flops_done_}, torch::kDouble));
  m.tokens_per_second = work[0].item<double>() / seconds;
  m.mfu = work[1].item<double>() / seconds / gemm_flops_ / ranks;
  const double exposed_communication_ms = step_.exposed_communication_ms();
  if (chief()) {
    nlohmann::ordered_json line = {{"step", m.step},
                                   {"loss", m.loss},
                                   {"mlm_loss", m.mlm_loss},
                                   {"nsp_loss", m.nsp_loss},
                                   {"learning_rate", m.learning_rate},
                                   {"grad_norm", m.grad_norm},
                                   {"loss_scale", m.loss_scale},
                                   {"skipped_steps", m.skipped},
                                   {"sequences_per_second", m.sequences_per_second},
                                   {"tokens_per_second", m.tokens_per_second},
                                   {"mfu", m.mfu}};
    if (environment_.world_size > 1) line["exposed_communication_ms"] = exposed_communication_ms;
    write_metrics(line);
    progress_->update(m);
  }
  sequences_per_second_ = m.sequences_per_second;
  interval_start_ = Clock::now();
  interval_first_step_ = applied_;
  tried_ = tokens_ = 0;
  flops_done_ = 0;
}

void Trainer::evaluate() {
  const auto start = Clock::now();
  set_phase("evaluation");
  const AveragedWeights averaged(*step_.optimizer);
  const Evaluation e = evaluate_pretraining(step_, validation_, *unigram_, config_.data.max_eval_examples);
  interval_start_ += Clock::now() - start;  // not training time
  if (!chief()) return;
  write_metrics({{"step", applied_},
                 {"evaluation",
                  {{"mlm_loss", e.mlm_loss},
                   {"mlm_accuracy", e.mlm_accuracy},
                   {"nsp_loss", e.nsp_loss},
                   {"nsp_accuracy", e.nsp_accuracy},
                   {"unigram_entropy", e.unigram_entropy},
                   {"examples", e.examples},
                   {"masked_tokens", e.masked_tokens}}}});
  char text[160];
  std::snprintf(text, sizeof text,
                "step %ld: held-out mlm loss %.4f (word frequency %.4f), mlm accuracy %.3f, nsp accuracy %.3f",
                static_cast<long>(applied_), e.mlm_loss, e.unigram_entropy, e.mlm_accuracy, e.nsp_accuracy);
  say(text);
  figures_["mlm_loss"] = e.mlm_loss;
  figures_["mlm_accuracy"] = e.mlm_accuracy;
  figures_["nsp_accuracy"] = e.nsp_accuracy;
  figures_["unigram_entropy"] = e.unigram_entropy;
  if (applied_ == 0 && config_.initial_checkpoint.empty()) figures_["mlm_loss_untrained"] = e.mlm_loss;
}

void Trainer::write_metrics(const nlohmann::ordered_json& line) {
  if (metrics_failure_) return;
  try {
    metrics_file_->write(line);
  } catch (const IoError&) {
    metrics_failure_ = std::current_exception();
  }
}

void Trainer::save() {
  if (saved_ == applied_) return;
  saved_ = applied_;
  const auto start = Clock::now();
  set_phase("checkpoint");
  step_.check_parameters();
  // Every rank takes part when the optimizer's state is sharded.
  Checkpoint checkpoint{.model = state_dict(*step_.model),
                        .optimizer = step_.optimizer->state_dict(),
                        .state = {},
                        .tokenizer_model = {}};
  // A checkpoint may take longer to write than a collective may last; and a rank that stops says that it is written.
  const auto written = [&] {
    wait_for_rank(group_, 0, "checkpoint of step " + std::to_string(applied_), config_.distributed.timeout_seconds);
    interval_start_ += Clock::now() - start;
  };
  if (!chief()) return written();
  const SamplerState sampler = loader_->state();
  CheckpointState& state = checkpoint.state;
  state.step = applied_;
  state.sampler_seed = static_cast<int64_t>(sampler.seed);
  state.consumed_samples = sampler.consumed_samples;
  state.loss_scale = step_.scaler.current_scale().item<double>();
  state.growth_tracker = step_.scaler.growth_tracker().item<int64_t>();
  state.config = to_json(config_);
  state.config_sha256 = config_sha256(config_);
  state.data = data_;
  state.vocabulary = tokenizer_->vocabulary().tokens();
  state.do_lower_case = config_.data.tokenizer.do_lower_case;
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(tokenizer_.get())) {
    checkpoint.tokenizer_model = pieces->model();
  }
  state.metrics = figures_;
  save_checkpoint(config_.run_directory, checkpoint, config_.keep_checkpoints);
  written();
}

void Trainer::write_summary() {
  if (!chief()) return;
  nlohmann::ordered_json summary = {
      {"steps", applied_}, {"max_steps", config_.max_steps}, {"config_sha256", config_sha256(config_)}};
  for (const auto& [name, value] : figures_) summary[name] = value;
  summary["sequences_per_second"] = sequences_per_second_;
  AtomicFile file(config_.run_directory + "/summary.json");
  file.write(summary.dump(2) + "\n");
  file.commit();
}

int Trainer::train() {
  const auto due = [&](int64_t every) { return every > 0 && applied_ % every == 0; };
  if (applied_ == 0 && validation_) evaluate();
  interval_start_ = Clock::now();
  interval_first_step_ = applied_;
  while (applied_ < last_step() && !stopping_) {
    advance_to(next_stop());
    if (due(config_.log_every) || applied_ == last_step() || stopping_) log();
    if (validation_ && !stopping_ && (due(config_.evaluate_every) || applied_ == last_step())) evaluate();
    if (due(config_.checkpoint_every) || applied_ == last_step() || stopping_) save();
  }
  if (progress_) progress_->finish();
  const bool metrics_lost = step_.sum_over_ranks(int64_t{metrics_failure_ != nullptr}) > 0;  // all ranks end alike
  if (metrics_failure_) {
    say("stopped at step " + std::to_string(applied_) + ", with a checkpoint, as metrics.jsonl cannot be written");
    std::rethrow_exception(metrics_failure_);
  }
  if (metrics_lost) return kIo;
  write_summary();
  if (!stopping_ || applied_ == config_.max_steps) return kOk;
  say("stopped by a signal at step " + std::to_string(applied_) +
      "; the checkpoint is saved, the same command goes on from it");
  return kPreempted;
}

int Trainer::run(bool allow_config_change) {
  // Only the holder of the lock may set damaged checkpoints aside: rank 0 looks, the others are told the step.
  int64_t newest = 0;
  if (chief()) {
    bool damaged = false;
    const auto found = newest_valid_checkpoint(config_.run_directory, [&](const std::string& message) {
      say(message);
      damaged = true;
    });
    newest = found ? found->step : -1;
    if (!found && damaged) say("no valid checkpoint is left: starting at step 0");
  }
  wait_for_rank(group_, 0, "look for a checkpoint", config_.distributed.timeout_seconds);
  newest = step_.sum_over_ranks(newest);
  if (newest >= 0) {
    resume(checkpoint_directory(config_.run_directory, newest), allow_config_change);
  } else if (!config_.initial_checkpoint.empty()) {
    start_from(config_.initial_checkpoint);
  }
  step_.broadcast_parameters();
  if (applied_ == 0) say(config_.optimizer.type + ", " + step_.parameter_report());
  if (const int64_t tokens = tokenizer_->vocabulary().size(); tokens < config_.model.vocab_size) {
    say("model.vocab_size " + std::to_string(config_.model.vocab_size) + ": " + config_.data.vocab_file + " has " +
        std::to_string(tokens) + " tokens, the rows after them are padding");
  }
  if (chief()) {
    AtomicFile file(config_.run_directory + "/config.json");
    file.write(to_json(config_));
    file.commit();
    metrics_file_.emplace(config_.run_directory + "/metrics.jsonl", applied_);
  }
  if (applied_ >= last_step()) {
    say("already finished: step " + std::to_string(applied_) + " of " + std::to_string(last_step()) + " in " +
        config_.run_directory);
    if (!std::filesystem::exists(config_.run_directory + "/summary.json")) write_summary();
    return kOk;
  }
  if (chief()) progress_.emplace(applied_, last_step());
  if (config_.data.log_sample_ids) {
    sample_log_.emplace(config_.run_directory, environment_.rank, environment_.world_size,
                        loader_->state().consumed_samples / config_.global_batch_size);
  }
  return train();
}

}  // namespace

c10::Device select_device(const std::string& name, int64_t local_rank) {
  const bool available = torch::cuda::is_available();
  if (name == "cuda" && !available)
    throw ConfigError("device cuda: no usable CUDA device; `bert doctor` says what is there");
  if (name == "cpu" || !available) return c10::Device(c10::kCPU);
  const auto devices = static_cast<int64_t>(torch::cuda::device_count());
  return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank % devices));
}

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

int pretrain_command(int argc, char** argv) {
  CLI::App app(
      "Pre-trains as CONFIG.json says; goes on from the newest valid checkpoint of its run directory. Keys of the "
      "configuration are set\n"
      "with a.b=value. SIGTERM, SIGINT and SIGUSR1 save a checkpoint and end with 75.\n"
      "Example: bert pretrain configs/quickstart.json max_steps=500 optimizer.lr=1e-3",
      "bert pretrain");
  std::string path;
  std::vector<std::string> overrides;
  bool allow_config_change = false;
  app.add_option("config", path, "CONFIG.json")->required();
  app.add_option("overrides", overrides, "a.b=value");
  app.add_flag("--allow-config-change", allow_config_change,
               "go on although the configuration differs from the checkpoint's");
  if (!parse_command_line(app, argc, argv)) return kOk;
  return pretrain(load_pretrain_config(path, overrides), allow_config_change);
}

}  // namespace bert
