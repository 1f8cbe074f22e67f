#include "app/train/run_state.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <chrono>

#include "app/checkpoint/files.h"
#include "app/checkpoint/fit.h"
#include "app/distributed/rank_zero.h"
#include "app/profile/phase_range.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "app/train/run_inputs.h"
#include "data/io/error.h"
#include "model/state_dict.h"

namespace bert {

const char* dtype_name(const StateDict& weights) {
  const torch::ScalarType type = weights.front().value().scalar_type();
  return type == torch::kBFloat16 ? "BF16" : type == torch::kHalf ? "F16" : "F32";
}

/// Waits for rank 0 longer than a collective may last: to verify or to write a checkpoint takes time.
void RunState::wait_for_rank_zero(const std::string& what) {
  wait_for_rank(group(), 0, what, config().distributed.timeout_seconds);
}

int64_t RunState::find_newest() {
  return std::stoll(of_rank_zero("look for a checkpoint", [&] {
    const auto found =
        newest_valid_checkpoint(config().run_directory, [this](const std::string& message) { log().say(message); });
    return std::to_string(found ? found->step : -1);
  }));
}

std::string RunState::of_rank_zero(const std::string& name, const std::function<std::string()>& work) const {
  return on_rank_zero(group(), name, config().distributed.timeout_seconds, work);
}

Checkpoint RunState::open(const std::string& directory) {
  return open_checkpoint(directory, is_rank_zero() ? TensorBytes::kMapped : TensorBytes::kNone);
}

void RunState::refuse_differences(const std::string& directory, const std::vector<std::string>& differences) {
  std::string message = "this run differs from that of " + directory + ":";
  for (const std::string& difference : differences) message += "\n  " + difference;
  throw ConfigError(message + "\nuse another run_directory, or --allow-config-change");
}

void RunState::resume(const std::string& directory, Differences on_differences) {
  const Checkpoint checkpoint = open(directory);
  const CheckpointState& state = checkpoint.state;
  const Earlier before = read_earlier(state, directory);
  std::vector<std::string> differences = compare_data(state.data, data());
  for (const ConfigDifference& d : before.changes) {
    const bool says_branch = d.pointer.starts_with("/initial_") || d.pointer == "/from_step";
    if (on_differences == Differences::kSay && says_branch) continue;
    differences.push_back(d.pointer + ": was " + d.before + ", now " + d.after);
  }
  if (!differences.empty() && on_differences == Differences::kRefuse) refuse_differences(directory, differences);
  if (on_differences == Differences::kSay) {
    for (const std::string& difference : differences) log().say("this branch differs: " + difference);
  }
  if (before.seed != config().seed) {
    throw ConfigError(fmt::format(
        "seed: was {} in {}, now {}; the order of the examples follows from it, so that not even --allow-config-change "
        "changes it: use another run_directory, with {} as initial_checkpoint to start from these weights",
        before.seed, directory, config().seed, config().run_directory));
  }
  fit_checkpoint(directory, before.all, {"/model/", "/precision", "/optimizer/"},
                 [&] { step().load(checkpoint.model, checkpoint.optimizer); });
  expect_whole(checkpoint.model);
  expect_whole(checkpoint.optimizer);
  GradScaler& scaler = step().scaler;
  if (needs_loss_scale(before.precision)) {  // otherwise the checkpoint has no meaningful scale
    StateDict scale;
    scale.insert("scale", torch::tensor(state.loss_scale));
    scale.insert("growth_tracker", torch::tensor(state.growth_tracker));
    scaler.load_state_dict(scale);
  }
  if (before.precision == config().precision) scaler.continue_skips(state.consecutive_skips);
  // Steps of older checkpoints, which do not say their number, all had global_batch_size sequences.
  loader().restore({.seed = static_cast<uint64_t>(state.sampler_seed),
                    .consumed_sequences = state.consumed_samples,
                    .consumed_steps = state.consumed_steps > 0 ? state.consumed_steps
                                                               : state.consumed_samples / before.global_batch_size});
  log().summary().restore(state.metrics);
  evaluation_due_ = state.evaluation_due != 0;
  clock_ = state.clock;
  if (on_differences == Differences::kSay) {  // a branch, which goes on with the warm-up of its run
    const int64_t warmup_end = state.clock.warmup_end > 0 ? state.clock.warmup_end : state.step;
    clock_ = {.first_step = state.step, .warmup_end = warmup_end};
  }
  if (config().max_hours > 0 && clock_.warmup_end > 0) step().set_warmup(clock_.warmup_end);
  if (config().max_hours > 0 && clock_.decay_end > 0) step().set_decay(clock_.decay_begin, clock_.decay_end);
  log().say("continuing from " + directory);
}

void RunState::set_warmup(int64_t end) {
  clock_.warmup_end = end;
  step().set_warmup(end);
}

void RunState::set_decay(int64_t begin, int64_t end) {
  clock_.decay_begin = begin;
  clock_.decay_end = end;
  step().set_decay(begin, end);
}

void RunState::branch() {
  const std::string& run = config().initial_checkpoint;
  resume(of_rank_zero("look for the checkpoint of from_step",
                      [&] {
                        std::string kept;
                        for (const CheckpointEntry& entry : list_checkpoints(run)) {
                          if (entry.step == from_step()) {
                            verify_checkpoint(entry.directory);
                            return entry.directory;
                          }
                          kept += (kept.empty() ? "" : ", ") + std::to_string(entry.step);
                        }
                        throw InputMissing(fmt::format(
                            "from_step {}: the run initial_checkpoint {} has {}; name one of its steps, or keep more "
                            "with keep_checkpoints",
                            from_step(), run, kept.empty() ? "no checkpoints" : "checkpoints of the steps " + kept));
                      }),
         Differences::kSay);
  save(from_step());
}

int64_t RunState::restore(bool allow_config_change) {
  const int64_t newest = find_newest();
  if (newest >= 0) {
    resume(checkpoint_directory(config().run_directory, newest),
           allow_config_change ? Differences::kAllow : Differences::kRefuse);
  } else if (from_step() > 0) {
    branch();
    return from_step();
  } else if (!config().initial_checkpoint.empty()) {
    start_from_initial_checkpoint();
  }
  return newest;
}

void RunState::save_with(int64_t applied, const std::function<void(const Checkpoint& checkpoint)>& write) {
  const auto start = std::chrono::steady_clock::now();
  const PhaseRange phase(Phase::kCheckpoint);
  step().check_parameters();
  // Every rank calls state_dict(): a sharded optimizer state is gathered from all ranks.
  Checkpoint checkpoint{.model = state_dict(step().module()), .optimizer = step().optimizer_state(), .state = {}};
  if (is_rank_zero()) {
    const SamplerState sampler = loader().state();
    const GradScaler& scaler = step().scaler;
    CheckpointState& state = checkpoint.state;
    state.step = applied;
    state.sampler_seed = static_cast<int64_t>(sampler.seed);
    state.consumed_samples = sampler.consumed_sequences;
    state.consumed_steps = sampler.consumed_steps;
    state.loss_scale = scaler.current_scale().item<double>();
    state.growth_tracker = scaler.growth_tracker().item<int64_t>();
    state.consecutive_skips = step().consecutive_skips();
    state.config = config_json();
    state.config_sha256 = sha256(state.config);
    state.data = data();
    if (config().max_hours > 0) {
      state.clock = clock_;
      state.clock.seconds = seconds();
    }
    state.evaluation_due = int64_t{evaluation_due_};
    state.metrics = log().summary().figures();
    state.model.vocabulary = tokenizer().vocabulary().tokens();
    state.model.added_tokens = tokenizer().vocabulary().added();
    if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&tokenizer())) {
      state.model.tokenizer_model = pieces->model();
    }
    describe(checkpoint);
    check_directory();
    write(checkpoint);
  }
  // A rank may end with 75 only if the checkpoint is written. A step has a second checkpoint if a run stops after steps
  // that it skipped.
  wait_for_rank_zero(fmt::format("checkpoint {} of this start, of step {}", ++saves_, applied));
  log().leave_out(std::chrono::steady_clock::now() - start);
}

void RunState::save(int64_t applied) {
  save_with(applied, [this](const Checkpoint& checkpoint) {
    save_checkpoint(config().run_directory, checkpoint, config().keep_checkpoints);
  });
}

void RunState::save_to(const std::string& directory, int64_t applied) {
  save_with(applied, [&](const Checkpoint& checkpoint) { write_checkpoint(directory, checkpoint); });
}

}  // namespace bert
