#include "app/train/run_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/files.h"
#include "app/checkpoint/fit.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/train/rank_agreement.h"
#include "app/train/rank_zero.h"
#include "app/train/run_inputs.h"
#include "app/train/run_loader.h"
#include "data/io/error.h"
#include "model/state_dict.h"

namespace bert {
namespace {

/// `loader` for this rank.
DataLoaderConfig of_rank(DataLoaderConfig loader, const PretrainConfig& config,
                         const DistributedEnvironment& environment, c10::Device device) {
  check_micro_batches(config, environment.world_size);
  loader.rank = environment.rank;
  loader.world_size = environment.world_size;
  loader.pin_memory = device.is_cuda();
  return loader;
}

/// The identities of the shards. Throws ConfigError if the other ranks have other shards.
std::map<std::string, DataIdentity> agreed_data(std::map<std::string, DataIdentity> data,
                                                const PretrainingShards* validation, const ProcessGroupPtr& group,
                                                int64_t timeout_seconds) {
  if (validation != nullptr) data["validation"] = identity_of(*validation);
  expect_same_data(group, data, timeout_seconds);
  return data;
}

/// `tensors`, by names of parameters that may have a prefix, without those of the sentence-pair head. Appends their
/// names to `left_out`.
StateDict without_sentence_pairs(const StateDict& tensors, std::vector<std::string>& left_out) {
  StateDict kept;
  for (const auto& item : tensors) {
    const std::string& name = item.key();
    if (std::any_of(kSentencePairParameters.begin(), kSentencePairParameters.end(),
                    [&](const char* head) { return name.find(head) != std::string::npos; })) {
      left_out.push_back(name);
    } else {
      kept.insert(name, item.value());
    }
  }
  return kept;
}

}  // namespace

RunState::RunState(const PretrainConfig& given, const DistributedEnvironment& environment, c10::Device device,
                   ProcessGroupPtr& joined)
    : config(given),
      tokenizer(load_tokenizer(config)),
      group(expect_same_config(joined = init_process_group({.backend = config.distributed.backend,
                                                            .init_method = config.distributed.init_method,
                                                            .timeout_seconds = config.distributed.timeout_seconds,
                                                            .device = device,
                                                            .debug = config.distributed.debug}),
                               config)),
      train(open_shards(config, "train", *tokenizer)),
      objective(objective_of(with_objective(config, *train))),
      validation(config.evaluate_every > 0 ? open_shards(with_objective(config, *train), "validation", *tokenizer)
                                           : nullptr),
      data(agreed_data(training_identities(config, *train), validation.get(), group,
                       config.distributed.timeout_seconds)),
      step(with_objective(config, *train), device, group),
      log(config, objective, step),
      loader(train, of_rank(loader_config(config, *train, tokenizer.get()), config, environment, device)) {
  for (const auto& shards : {train, validation}) {
    if (const std::string warning = shards ? unknown_vocabulary(*shards) : ""; !warning.empty()) log.say(warning);
  }
  if (loader.sources().size() > 1) step.tell_sources_apart(static_cast<int64_t>(loader.sources().size()));
}

/// Waits for rank 0 longer than a collective may last: to verify or to write a checkpoint takes time.
void RunState::wait_for_chief(const std::string& what) const {
  wait_for_rank(group, 0, what, config.distributed.timeout_seconds);
}

/// Returns the step of the newest valid checkpoint, -1 if there is none. Rank 0 holds the lock of the run directory, so
/// it alone looks and sets damaged checkpoints aside; the others are told the step.
int64_t RunState::find_newest() {
  return std::stoll(of_chief("look for a checkpoint", [&] {
    bool damaged = false;
    const auto found = newest_valid_checkpoint(config.run_directory, [&](const std::string& message) {
      log.say(message);
      damaged = true;
    });
    if (!found && damaged) log.say("no valid checkpoint is left: starting at step 0");
    return std::to_string(found ? found->step : -1);
  }));
}

/// on_rank_zero() of this group. `name` says what rank 0 does.
std::string RunState::of_chief(const std::string& name, const std::function<std::string()>& work) const {
  return on_rank_zero(group, name, config.distributed.timeout_seconds, work);
}

/// Opens a verified checkpoint. Rank 0 alone has the bytes of its tensors: a thousand ranks that read a file of
/// gigabytes stop a shared file system.
Checkpoint RunState::open(const std::string& directory) const {
  return open_checkpoint(directory, chief() ? TensorBytes::kMapped : TensorBytes::kNone);
}

void RunState::resume(const std::string& directory, bool allow_config_change) {
  const Checkpoint checkpoint = open(directory);
  const CheckpointState& state = checkpoint.state;
  PretrainConfig before = parse_pretrain_config(state.config, directory + "/state.json");
  if (state.objective != objective) {
    throw ConfigError(
        fmt::format("objective: was {} in {}, now {}; not even --allow-config-change changes it: use another "
                    "run_directory, with {} as initial_checkpoint to start from these weights",
                    name_of_value(state.objective), directory, name_of_value(objective), config.run_directory));
  }
  before.objective = config.objective;  // two words for one objective are no difference
  std::vector<std::string> differences = compare_data(state.data, data);
  for (const ConfigDifference& d : compare_for_resume(before, config)) {
    differences.push_back(d.pointer + ": was " + d.before + ", now " + d.after);
  }
  if (!differences.empty() && !allow_config_change) {
    std::string message = "this run differs from that of " + directory + ":";
    for (const std::string& difference : differences) message += "\n  " + difference;
    throw ConfigError(message + "\nuse another run_directory, or --allow-config-change");
  }
  if (before.seed != config.seed) {
    throw ConfigError(fmt::format(
        "seed: was {} in {}, now {}; the order of the examples follows from it, so that not even --allow-config-change "
        "changes it: use another run_directory, with {} as initial_checkpoint to start from these weights",
        before.seed, directory, config.seed, config.run_directory));
  }
  fit_checkpoint(directory, state, config, {"/model/", "/precision", "/optimizer/"},
                 [&] { step.load(checkpoint.model, checkpoint.optimizer); });
  if (needs_loss_scale(parse_precision(before.precision))) {  // otherwise the checkpoint has no meaningful scale
    StateDict scaler;
    scaler.insert("scale", torch::tensor(state.loss_scale));
    scaler.insert("growth_tracker", torch::tensor(state.growth_tracker));
    step.scaler.load_state_dict(scaler);
  }
  if (before.precision == config.precision) step.scaler.continue_skips(state.consecutive_skips);
  loader.restore({.seed = static_cast<uint64_t>(state.sampler_seed), .consumed_sequences = state.consumed_samples});
  log.restore(state.metrics);
  log.say("continuing from " + directory);
}

/// Returns the directory of a valid checkpoint that initial_checkpoint stands for. Rank 0 chooses and verifies it.
std::string RunState::find_initial_checkpoint() {
  return of_chief("verification of initial_checkpoint", [&] {
    return find_valid_checkpoint(config.initial_checkpoint,
                                 [&](const std::string& message) { log.say("initial_checkpoint: " + message); })
        .directory;
  });
}

void RunState::start_from_initial_checkpoint() {
  std::string directory;
  Checkpoint checkpoint = [&] {
    try {
      directory = find_initial_checkpoint();
      return open(directory);
    } catch (const InputMissing& error) {
      throw InputMissing(std::string("initial_checkpoint: ") + error.what());
    }
  }();
  if (checkpoint.state.vocabulary != tokenizer->vocabulary().tokens()) {
    throw ConfigError("initial_checkpoint: " + directory + " was trained with another vocabulary than " +
                      config.data.vocab_file);
  }
  fit_objective(directory, checkpoint);
  fit_checkpoint("initial_checkpoint: " + directory, checkpoint.state, config, {"/model/"}, [&] {
    step.start_phase({.weights = checkpoint.model,
                      .optimizer_state = checkpoint.optimizer,
                      .keep_moments = config.initial_optimizer_state});
  });
  log.say("starting from the weights" + std::string(config.initial_optimizer_state ? " and moments" : "") + " of " +
          directory);
}

void RunState::fit_objective(const std::string& directory, Checkpoint& checkpoint) {
  const Objective before = checkpoint.state.objective;
  if (before == objective) return;
  const std::string names =
      fmt::format("initial_checkpoint: {} was trained with objective {}", directory, name_of_value(before));
  if (has_pairs(before) && has_pairs(objective)) {
    log.say(fmt::format("{}; its sentence-pair head goes on with {}", names, name_of_value(objective)));
  } else if (has_pairs(before)) {
    std::vector<std::string> left_out, of_optimizer;
    checkpoint.model = without_sentence_pairs(checkpoint.model, left_out);
    checkpoint.optimizer = without_sentence_pairs(checkpoint.optimizer, of_optimizer);
    log.say(fmt::format("{}; this run, with {}, leaves out {}", names, name_of_value(objective),
                        fmt::join(left_out, ", ")));
  } else {
    throw ConfigError(fmt::format(
        "{}, so it has no pooler and no sentence-pair head, which this run's objective {} needs; expected a checkpoint "
        "of nsp or sop, or objective=mlm here",
        names, name_of_value(objective)));
  }
}

int64_t RunState::restore(bool allow_config_change) {
  const int64_t newest = find_newest();
  if (newest >= 0) {
    resume(checkpoint_directory(config.run_directory, newest), allow_config_change);
  } else if (!config.initial_checkpoint.empty()) {
    start_from_initial_checkpoint();
  }
  return newest;
}

void RunState::save(int64_t applied) {
  const auto start = std::chrono::steady_clock::now();
  set_phase(Phase::kCheckpoint);
  step.check_parameters();
  // Every rank calls state_dict(): a sharded optimizer state is gathered from all ranks.
  Checkpoint checkpoint{
      .model = state_dict(*step.model), .optimizer = step.optimizer->state_dict(), .state = {}, .tokenizer_model = {}};
  if (chief()) {
    const SamplerState sampler = loader.state();
    checkpoint.state = {.step = applied,
                        .sampler_seed = static_cast<int64_t>(sampler.seed),
                        .consumed_samples = sampler.consumed_sequences,
                        .loss_scale = step.scaler.current_scale().item<double>(),
                        .growth_tracker = step.scaler.growth_tracker().item<int64_t>(),
                        .consecutive_skips = step.consecutive_skips(),
                        .objective = objective,
                        .config = to_json(config),
                        .config_sha256 = config_sha256(config),
                        .data = data,
                        .vocabulary = tokenizer->vocabulary().tokens(),
                        .metrics = log.figures()};
    if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get())) {
      checkpoint.tokenizer_model = pieces->model();
    }
    save_checkpoint(config.run_directory, checkpoint, config.keep_checkpoints);
  }
  // A rank may end with 75 only if the checkpoint is written. A step has a second checkpoint if a run stops after steps
  // that it skipped.
  wait_for_chief(fmt::format("checkpoint {} of this start, of step {}", ++saves_, applied));
  log.leave_out(std::chrono::steady_clock::now() - start);
}

}  // namespace bert
