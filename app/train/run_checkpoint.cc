#include "app/train/run_checkpoint.h"

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/checkpoint/fit.h"
#include "app/system/error_report.h"
#include "app/system/errors.h"
#include "app/train/run_inputs.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// A checkpoint may take longer to look at, or to write, than a collective may last.
void wait_for_chief(const RunParts& run, const std::string& what) {
  wait_for_rank(run.group, 0, what, run.config.distributed.timeout_seconds);
}

/// Only the holder of the lock may set damaged checkpoints aside: rank 0 looks, the others are told the step. -1 when
/// there is none.
int64_t find_newest(const RunParts& run) {
  int64_t newest = 0;
  if (run.step.rank() == 0) {
    bool damaged = false;
    const auto found = newest_valid_checkpoint(run.config.run_directory, [&](const std::string& message) {
      run.log.say(message);
      damaged = true;
    });
    newest = found ? found->step : -1;
    if (!found && damaged) run.log.say("no valid checkpoint is left: starting at step 0");
  }
  wait_for_chief(run, "look for a checkpoint");
  return run.step.sum_over_ranks(newest);
}

void resume(const RunParts& run, const std::string& directory, bool allow_config_change) {
  const Checkpoint checkpoint = open_checkpoint(directory);
  const CheckpointState& state = checkpoint.state;
  std::vector<std::string> differences = compare_data(state.data, run.data);
  const PretrainConfig before = parse_pretrain_config(state.config, directory + "/state.json");
  for (const ConfigDifference& d : compare_for_resume(before, run.config)) {
    differences.push_back(d.pointer + ": was " + d.before + ", now " + d.after);
  }
  if (!differences.empty() && !allow_config_change) {
    std::string message = "this run differs from that of " + directory + ":";
    for (const std::string& difference : differences) message += "\n  " + difference;
    throw ConfigError(message + "\nuse another run_directory, or --allow-config-change");
  }
  if (before.seed != run.config.seed) {
    throw ConfigError(fmt::format(
        "seed: was {} in {}, now {}; the order of the examples follows from it, so that not even --allow-config-change "
        "changes it: use another run_directory, with {} as initial_checkpoint to start from these weights",
        before.seed, directory, run.config.seed, run.config.run_directory));
  }
  fit_checkpoint(directory, state, run.config, {"/model/", "/precision", "/optimizer/"}, [&] {
    load_state_dict(*run.step.model, checkpoint.model);
    run.step.optimizer->load_state_dict(checkpoint.optimizer);
  });
  if (needs_loss_scale(
          parse_precision(before.precision))) {  // otherwise it had no scale that a changed precision could use
    StateDict scaler;
    scaler.insert("scale", torch::tensor(state.loss_scale));
    scaler.insert("growth_tracker", torch::tensor(state.growth_tracker));
    run.step.scaler.load_state_dict(scaler);
  }
  if (before.precision == run.config.precision) run.step.scaler.continue_skips(state.consecutive_skips);
  run.loader.restore({.seed = static_cast<uint64_t>(state.sampler_seed), .consumed_sequences = state.consumed_samples});
  run.log.restore(state.metrics);
  run.log.say("continuing from " + directory);
}

/// Rank 0's text on every rank.
std::string text_of_chief(const RunParts& run, const std::string& text) {
  const bool chief = run.step.rank() == 0;
  const int64_t size = run.step.sum_over_ranks(chief ? static_cast<int64_t>(text.size()) : 0);
  torch::Tensor letters = torch::zeros({size}, torch::kInt64);
  if (chief) std::copy(text.begin(), text.end(), letters.data_ptr<int64_t>());
  letters = run.step.sum_over_ranks(letters);
  const auto* values = letters.const_data_ptr<int64_t>();
  std::string result;
  for (int64_t i = 0; i < size; ++i) result += static_cast<char>(values[i]);
  return result;
}

/// Rank 0 chooses and verifies.
std::string find_initial_checkpoint(const RunParts& run) {
  std::string directory;
  if (run.step.rank() == 0) {
    directory = find_valid_checkpoint(run.config.initial_checkpoint, [&](const std::string& message) {
                  run.log.say("initial_checkpoint: " + message);
                }).directory;
  }
  wait_for_chief(run, "verify initial_checkpoint");
  return text_of_chief(run, directory);
}

void start_from_initial_checkpoint(const RunParts& run) {
  std::string directory;
  const Checkpoint checkpoint = [&] {
    try {
      directory = find_initial_checkpoint(run);
      return open_checkpoint(directory);
    } catch (const InputMissing& error) {
      throw InputMissing(std::string("initial_checkpoint: ") + error.what());
    }
  }();
  if (checkpoint.state.vocabulary != run.tokenizer.vocabulary().tokens()) {
    throw ConfigError("initial_checkpoint: " + directory + " was trained with another vocabulary than " +
                      run.config.data.vocab_file);
  }
  fit_checkpoint("initial_checkpoint: " + directory, checkpoint.state, run.config, {"/model/"}, [&] {
    run.step.start_phase({.weights = checkpoint.model,
                          .optimizer_state = checkpoint.optimizer,
                          .keep_moments = run.config.initial_optimizer_state});
  });
  run.log.say("starting from the weights" + std::string(run.config.initial_optimizer_state ? " and moments" : "") +
              " of " + directory);
}

}  // namespace

int64_t restore_run(const RunParts& run, bool allow_config_change) {
  const int64_t newest = find_newest(run);
  if (newest >= 0) {
    resume(run, checkpoint_directory(run.config.run_directory, newest), allow_config_change);
  } else if (!run.config.initial_checkpoint.empty()) {
    start_from_initial_checkpoint(run);
  }
  return newest;
}

void save_run(const RunParts& run, int64_t applied) {
  const auto start = std::chrono::steady_clock::now();
  set_phase(Phase::kCheckpoint);
  run.step.check_parameters();
  // Every rank takes part when the optimizer's state is sharded.
  Checkpoint checkpoint{.model = state_dict(*run.step.model),
                        .optimizer = run.step.optimizer->state_dict(),
                        .state = {},
                        .tokenizer_model = {}};
  if (run.step.rank() == 0) {
    const SamplerState sampler = run.loader.state();
    checkpoint.state = {.step = applied,
                        .sampler_seed = static_cast<int64_t>(sampler.seed),
                        .consumed_samples = sampler.consumed_sequences,
                        .loss_scale = run.step.scaler.current_scale().item<double>(),
                        .growth_tracker = run.step.scaler.growth_tracker().item<int64_t>(),
                        .consecutive_skips = run.step.consecutive_skips(),
                        .config = to_json(run.config),
                        .config_sha256 = config_sha256(run.config),
                        .data = run.data,
                        .vocabulary = run.tokenizer.vocabulary().tokens(),
                        .metrics = run.log.figures()};
    if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(&run.tokenizer)) {
      checkpoint.tokenizer_model = pieces->model();
    }
    save_checkpoint(run.config.run_directory, checkpoint, run.config.keep_checkpoints);
  }
  wait_for_chief(run, "checkpoint of step " + std::to_string(applied));  // a rank that stops says that it is written
  run.log.leave_out(std::chrono::steady_clock::now() - start);
}

}  // namespace bert
