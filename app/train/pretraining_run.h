// Pre-training as a kind of run: shards, the two objectives, and the weights of an earlier run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/checkpoint/checkpoint.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/environment.h"
#include "app/distributed/process_group.h"
#include "app/interop/bert_parameters.h"
#include "app/train/run_log.h"
#include "app/train/run_state.h"
#include "app/train/step/evaluation.h"
#include "app/train/step/masked_sentences.h"
#include "app/train/step/training_step.h"
#include "data/formats/shard.h"
#include "data/loader/dataloader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

struct ForeignFormat;  // app/interop/formats.h

class PretrainingRun : public RunState {
 public:
  /// Reads the vocabulary, meets the other ranks, opens the shards and makes the model. Throws ConfigError if the ranks
  /// differ in their configuration or data, PeerError, DataError, InputMissing, IoError. Sets `joined` to the group as
  /// soon as the ranks have met, so that the group outlives an exception of this constructor.
  PretrainingRun(const PretrainConfig& config, const DistributedEnvironment& environment, c10::Device device,
                 ProcessGroupPtr& joined);

  [[nodiscard]] const PretrainConfig& config() const override { return config_; }
  [[nodiscard]] std::string config_json() const override { return to_json(config_); }
  [[nodiscard]] const Tokenizer& tokenizer() const override { return *tokenizer_; }
  [[nodiscard]] const ProcessGroupPtr& group() const override { return group_; }
  [[nodiscard]] TrainingStep& step() override { return step_; }
  [[nodiscard]] RunLog& log() override { return log_; }
  [[nodiscard]] PretrainingDataLoader& loader() override { return loader_; }
  [[nodiscard]] const std::map<std::string, DataIdentity>& data() const override { return data_; }
  [[nodiscard]] int64_t examples() const override { return train_->size(); }
  [[nodiscard]] int64_t evaluation_examples() const override;
  [[nodiscard]] int64_t max_sequence_length() const override;
  [[nodiscard]] bool logs_examples() const override { return config_.data.log_sample_ids; }
  [[nodiscard]] bool evaluates() const override { return validation_ != nullptr; }
  [[nodiscard]] bool evaluates_at_start() const override { return evaluates(); }
  std::optional<EvaluationReport> evaluate(int64_t applied, bool last, const std::function<bool()>& stop) override;
  void announce(int64_t applied) override;

 private:
  Earlier read_earlier(const CheckpointState& state, const std::string& directory) override;
  void start_from_initial_checkpoint() override;
  void describe(Checkpoint& checkpoint) override;

  [[nodiscard]] EvaluationReport report_of(const Evaluation& evaluation, int64_t applied) const;
  std::string find_initial_checkpoint();
  Checkpoint open_initial_checkpoint(std::string& directory);
  Checkpoint open_foreign(const ForeignFormat& format, std::string& directory);
  /// The differences of the configuration in `state` from this one; none if it has no configuration of pre-training.
  [[nodiscard]] std::vector<ConfigDifference> differences_from(const CheckpointState& state,
                                                               const std::string& directory) const;
  void check_same_function(const std::string& directory, const CheckpointState& state) const;
  void take_parts(const std::string& directory, Checkpoint& checkpoint);
  void begin_rest(const std::string& reason, const std::function<bool(BertPart part)>& loaded, Checkpoint& checkpoint);
  /// Leaves the tensors of the sentence-pair head out of `checkpoint` if this run has none, and says so. Throws
  /// ConfigError if this run needs a head that `checkpoint` lacks.
  void fit_objective(const std::string& directory, Checkpoint& checkpoint);

  const std::unique_ptr<const Tokenizer> tokenizer_;
  const ProcessGroupPtr group_;
  const std::shared_ptr<const PretrainingShards> train_;
  std::vector<std::string> notes_;                             // sentences for log_
  const PretrainConfig config_;                                // with a number as micro_batch_size
  const Objective objective_;                                  // config.objective, or with "auto" that of `train`
  const std::shared_ptr<const PretrainingShards> validation_;  // nullptr if the run does not evaluate
  const std::map<std::string, DataIdentity> data_;             // of `train` and `validation`
  TrainingStep step_;
  RunLog log_;
  PretrainingDataLoader loader_;
  [[nodiscard]] std::optional<DynamicMasking> validation_masking() const;

  std::optional<UnigramModel> unigram_;       // if the run evaluates
  std::optional<MaskedSentences> sentences_;  // of rank 0, from its first evaluation on
};

}  // namespace bert
