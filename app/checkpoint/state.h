#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bert {

/// Which examples a run was made of: enough to know them again, and read from the shards' headers alone.
struct DataIdentity {
  std::string content_checksum;  // PretrainingShards::content_checksum()
  int64_t examples = 0;

  bool operator==(const DataIdentity&) const = default;
};

/// What a checkpoint keeps beside tensors: state.json.
struct CheckpointState {
  int64_t step = 0;              // applied optimizer steps
  int64_t sampler_seed = 0;      // data/loader/dataloader.h SamplerState
  int64_t consumed_samples = 0;  // over all ranks
  double loss_scale = 1;         // optim/amp.h
  int64_t growth_tracker = 0;
  int64_t consecutive_skips = 0;  // 0 in older checkpoints
  std::string config;             // the run's resolved configuration, as to_json wrote it; "" when there is none
  std::string config_sha256;      // of the run that wrote it; "" in older checkpoints
  std::map<std::string, DataIdentity> data;  // by key: train, validation where it was open; none in older ones
  std::vector<std::string> vocabulary;       // tokens by id, so that a checkpoint predicts by itself
  std::map<std::string, double> metrics;     // the last figures by plain names; NaN where there is none

  bool operator==(const CheckpointState&) const = default;
};

/// Sorted keys, final newline; equal states give equal bytes. Throws DataError when a token is not UTF-8.
std::string write_checkpoint_state(const CheckpointState& state);

/// What the program does not know is passed over: older checkpoints have more. `file` stands in messages. Throws
/// DataError.
CheckpointState parse_checkpoint_state(const std::string& text, const std::string& file);

}  // namespace bert
