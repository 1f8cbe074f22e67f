// The parts of a run: checkpoints are made of them, and restore them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/environment.h"
#include "app/distributed/process_group.h"
#include "app/train/run_log.h"
#include "app/train/training_step.h"
#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

/// Each rank of a run has one.
class RunState {
 public:
  /// Reads the vocabulary, meets the other ranks, opens the shards and makes the model. Throws ConfigError if the ranks
  /// differ in their configuration or data, PeerError, DataError, InputMissing, IoError. Sets `joined` to the group as
  /// soon as the ranks have met, so that the group outlives an exception of this constructor.
  RunState(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device,
           ProcessGroupPtr& joined);

  /// Restores the newest valid checkpoint of the run directory. Without one, takes the weights of
  /// config.initial_checkpoint; without that the run stays as it is. Returns the step of the checkpoint, -1 if the run
  /// begins. Every rank must call it; rank 0 alone reads the tensors, compares them with their checksums and sends them
  /// to the others. Throws ConfigError if its tensors do not fit, or if its configuration or examples differ in what must
  /// stay the same (unless `allow_config_change`); DataError, InputMissing, IoError.
  int64_t restore(bool allow_config_change);

  /// Writes the checkpoint of step `applied` and returns on every rank when rank 0 has written it. Every rank must call
  /// it. Throws IoError, PeerError if the weights of the ranks differ.
  void save(int64_t applied);

  const PretrainConfig config;
  const std::unique_ptr<const Tokenizer> tokenizer;
  const ProcessGroupPtr group;  // nullptr for one process
  const std::shared_ptr<const PretrainingShards> train;
  const Objective objective;                                  // config.objective, or with "auto" that of `train`
  const std::shared_ptr<const PretrainingShards> validation;  // nullptr if the run does not evaluate
  const std::map<std::string, DataIdentity> data;             // of `train` and `validation`, the same on all ranks
  TrainingStep step;
  RunLog log;
  PretrainingDataLoader loader;

 private:
  [[nodiscard]] bool chief() const { return step.rank() == 0; }
  void wait_for_chief(const std::string& what) const;
  int64_t find_newest();
  void resume(const std::string& directory, bool allow_config_change);
  [[nodiscard]] std::string of_chief(const std::string& name, const std::function<std::string()>& work) const;
  [[nodiscard]] Checkpoint open(const std::string& directory) const;
  std::string find_initial_checkpoint();
  void start_from_initial_checkpoint();
  /// Leaves the tensors of the sentence-pair head out of `checkpoint` if this run has none, and says so. Throws
  /// ConfigError if this run needs a head that `checkpoint` lacks.
  void fit_objective(const std::string& directory, Checkpoint& checkpoint);

  int64_t saves_ = 0;  // calls of save()
};

}  // namespace bert
