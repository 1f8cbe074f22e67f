// Pre-training as a kind of run: shards, the two objectives, and the weights of an earlier run.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "app/checkpoint/checkpoint.h"
#include "app/config/pretrain_config.h"
#include "app/distributed/process_group.h"
#include "app/train/log/run_log.h"
#include "app/train/pretraining_inputs.h"
#include "app/train/run_place.h"
#include "app/train/run_state.h"
#include "app/train/step/evaluation.h"
#include "app/train/step/masked_sentences.h"
#include "app/train/step/training_step.h"
#include "data/loader/look_ahead_loader.h"
#include "data/tokenizer/tokenizer.h"

namespace bert {

class PretrainingRun : public RunState {
 public:
  /// Makes the model. Throws ConfigError, IoError.
  PretrainingRun(PretrainingInputs inputs, const RunPlace& place);

  [[nodiscard]] const PretrainConfig& config() const override { return inputs_.config; }
  [[nodiscard]] std::string config_json() const override { return to_json(inputs_.config); }
  [[nodiscard]] const Tokenizer& tokenizer() const override { return *inputs_.tokenizer; }
  [[nodiscard]] const ProcessGroupPtr& group() const override { return group_; }
  [[nodiscard]] TrainingStep& step() override { return step_; }
  [[nodiscard]] RunLog& log() override { return log_; }
  [[nodiscard]] LookAheadLoader& loader() override { return loader_; }
  [[nodiscard]] const std::map<std::string, DataIdentity>& data() const override { return inputs_.data; }
  [[nodiscard]] int64_t examples() const override { return inputs_.train->size(); }
  [[nodiscard]] int64_t evaluation_examples() const override;
  [[nodiscard]] int64_t max_sequence_length() const override;
  [[nodiscard]] int64_t from_step() const override { return inputs_.config.from_step; }
  [[nodiscard]] double sequences(int64_t steps) const override;
  [[nodiscard]] bool logs_examples() const override { return inputs_.config.reports("samples"); }
  [[nodiscard]] bool evaluates() const override { return inputs_.validation != nullptr; }
  [[nodiscard]] bool evaluates_at_start() const override { return evaluates(); }
  std::optional<EvaluationReport> evaluate(int64_t applied, bool last, const std::function<bool()>& stop) override;
  void announce(int64_t applied) override;

 private:
  void use_graphs(c10::Device device);
  Earlier read_earlier(const CheckpointState& state, const std::string& directory) override;
  void start_from_initial_checkpoint() override;
  void describe(Checkpoint& checkpoint) override;

  [[nodiscard]] EvaluationReport report_of(const Evaluation& evaluation, int64_t applied) const;
  [[nodiscard]] std::optional<DynamicMasking> validation_masking() const;

  const PretrainingInputs inputs_;
  const ProcessGroupPtr group_;
  const Objective objective_;
  TrainingStep step_;
  RunLog log_;
  LookAheadLoader loader_;
  std::optional<UnigramModel> unigram_;       // if the run evaluates
  std::optional<MaskedSentences> sentences_;  // of rank 0, from its first evaluation on
};

}  // namespace bert
