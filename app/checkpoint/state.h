// The state of a run beside its tensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/config/model_description.h"
#include "data/config.h"

namespace bert {

/// The identity of the examples that a run was trained on, from the headers of the shards.
struct DataIdentity {
  std::string content_checksum;  // PretrainingShards::content_checksum()
  int64_t examples = 0;

  bool operator==(const DataIdentity&) const = default;
};

/// The time of a run that ends by the hour, and what follows from it.
struct RunClock {
  double seconds = 0;                      // of all processes up to the checkpoint
  int64_t first_step = 0;                  // the step at which they began
  int64_t warmup_end = 0;                  // last step of the warm-up, once it is known; 0: not yet
  int64_t decay_begin = 0, decay_end = 0;  // steps of the decay, once they are known; 0: not yet

  [[nodiscard]] bool empty() const { return seconds == 0; }
  bool operator==(const RunClock&) const = default;
};

/// The contents of state.json: all that a checkpoint keeps beside tensors.
struct CheckpointState {
  int64_t step = 0;              // applied optimizer steps
  int64_t sampler_seed = 0;      // data/loader/dataloader.h SamplerState
  int64_t consumed_samples = 0;  // over all ranks
  int64_t consumed_steps = 0;    // tried steps, with those that were skipped; 0 in older checkpoints
  double loss_scale = 1;         // optim/amp.h
  int64_t growth_tracker = 0;
  int64_t consecutive_skips = 0;  // 0 in older checkpoints
  /// Objective (older checkpoints have kNsp), task, labels, vocabulary and rules of the weights. read_trained_model()
  /// (app/config/finetune_config.h) adds what stands in `config`.
  ModelDescription model = {};
  std::string config;                        // resolved configuration of the run, from to_json; "" if there is none
  std::string config_sha256;                 // SHA-256 of `config`; "" in older checkpoints
  std::map<std::string, DataIdentity> data;  // keys: train, and validation if it was open; empty in older checkpoints
  RunClock clock = {};                       // of a run with max_hours
  int64_t evaluation_due = 0;                // 1: a signal has ended the evaluation of this step, or came before it
  std::map<std::string, double> metrics;     // last figures by name; NaN: none
};

/// The objective of this name. `place` stands in messages. Throws DataError.
Objective parse_objective(const std::string& name, const std::string& place);

/// The state as JSON: sorted keys, final newline; equal states give equal bytes. Throws DataError if a token is not
/// UTF-8.
std::string write_checkpoint_state(const CheckpointState& state);

/// Reads a state. Ignores unknown keys, which older checkpoints may have. `file` stands in messages. Throws DataError.
CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file);

}  // namespace bert
