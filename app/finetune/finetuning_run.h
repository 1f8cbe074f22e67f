// Fine-tuning as a kind of run: a task's examples, a new head on an encoder, official metrics and files of predictions.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/distributed/process_group.h"
#include "app/finetune/finetuning_inputs.h"
#include "app/finetune/finetuning_step.h"
#include "app/tasks/task_scoring.h"
#include "app/train/log/run_log.h"
#include "app/train/run_place.h"
#include "app/train/run_state.h"
#include "data/loader/look_ahead_loader.h"

namespace bert {

/// Fine-tunes as `config` says, with the results and errors of train() in app/train/trainer.h.
int finetune(const FinetuneConfig& config, bool allow_config_change);

class BorrowedWeights;  // finetuning_run.cc

class FinetuningRun : public RunState {
 public:
  /// Makes the model. Throws ConfigError, IoError.
  FinetuningRun(FinetuningInputs inputs, const RunPlace& place);

  [[nodiscard]] const FinetuneConfig& config() const override { return inputs_.config; }
  [[nodiscard]] std::string config_json() const override { return to_json(inputs_.config); }
  [[nodiscard]] const Tokenizer& tokenizer() const override { return *inputs_.tokenizer; }
  [[nodiscard]] const ProcessGroupPtr& group() const override { return group_; }
  [[nodiscard]] FinetuningStep& step() override { return step_; }
  [[nodiscard]] RunLog& log() override { return log_; }
  [[nodiscard]] LookAheadLoader& loader() override { return loader_; }
  [[nodiscard]] const std::map<std::string, DataIdentity>& data() const override { return inputs_.data; }
  [[nodiscard]] int64_t examples() const override {
    return inputs_.train ? inputs_.train->units(inputs_.head.unit()) : inputs_.embedding.rows;
  }
  [[nodiscard]] int64_t evaluation_examples() const override;
  [[nodiscard]] int64_t max_sequence_length() const override { return inputs_.config.data.task.max_seq_length; }
  [[nodiscard]] bool evaluates() const override { return !inputs_.dev.empty() || !inputs_.test.empty(); }
  std::optional<EvaluationReport> evaluate(int64_t applied, bool last, const std::function<bool()>& stop) override;
  void evaluated(int64_t applied) override;
  [[nodiscard]] bool ended_early() override;
  void announce(int64_t applied) override;

 private:
  /// The best evaluation, for early stopping and for run_directory/best.
  struct Best {
    std::optional<double> value;  // of the task's first metric
    int64_t step = 0, evaluations_since = 0;
  };

  /// The end of the constructor of a run of embeddings.
  void learn_embeddings(const RunPlace& place);
  Earlier read_earlier(const CheckpointState& state, const std::string& directory) override;
  void start_from_initial_checkpoint() override;
  void describe(Checkpoint& checkpoint) override;
  int64_t find_newest() override { return inputs_.newest; }

  /// The scores of a set with the settings of `data`; rank 0 writes its files. Empty if a rank has stopped. `loss` receives
  /// the mean loss.
  std::optional<TaskScores> score(const TaskSet& set, const TaskDataConfig& data, const std::function<bool()>& stop,
                                  double& loss);
  /// The scores of all development sets.
  struct Development {
    std::vector<TaskMetric> metrics;
    double loss = 0;                       // of the first set; 0: none
    double null_threshold = 0;             // SQuAD 2.0
    std::vector<double> label_thresholds;  // of independent labels
  };
  std::optional<Development> score_development(const std::function<bool()>& stop);
  void score_tests(EvaluationReport& report, const Development& development);
  void put_thresholds(const std::vector<double>& thresholds, std::map<std::string, double>& figures) const;
  void keep_score(EvaluationReport& report, int64_t applied);
  /// The best weights in place of those of step `applied`; nullptr if these are the best, or without keep_best, or if
  /// run_directory/best is not the checkpoint of the best step. Every rank must call it.
  std::unique_ptr<BorrowedWeights> borrow_best(int64_t applied);
  [[nodiscard]] bool watches_best() const {
    return inputs_.config.early_stopping_patience > 0 || inputs_.config.keep_best;
  }

  const ProcessGroupPtr group_;
  FinetuningInputs inputs_;
  FinetuningStep step_;
  RunLog log_;
  LookAheadLoader loader_;
  Best best_;
  bool improved_ = false;                 // by the last evaluation
  std::optional<double> null_threshold_;  // SQuAD 2.0: that of the last evaluation of the weights of a step
  std::vector<double> label_thresholds_;  // of independent labels: likewise
};

}  // namespace bert
