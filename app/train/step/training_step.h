// One optimizer step of pre-training. The trainer passes batches of the loader, the benchmark passes random batches.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "app/config/pretrain_config.h"
#include "app/train/step/optimizer_step.h"
#include "model/bert.h"

namespace bert {

class TrainingStep : public OptimizerStep {
 public:
  /// Makes a model with the initial weights of `config` on `device`, its optimizer and its loss scaler. The model has a
  /// sentence-pair head if objective_of(config) has pairs. `group` is
  /// nullptr for one process. `weights` is a dtype in place of the precision's, for example fp64 for exact comparisons.
  /// Throws ConfigError if the optimizer state is to be sharded over more ranks than there are parameters.
  TrainingStep(const PretrainConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
               std::optional<c10::ScalarType> weights = {});

  /// Forward under the autocast of the run. Gradient mode is that of the caller.
  PretrainingOutput forward(const PackedBatch& batch);

  /// "mlm", and the objective's name if it has pairs.
  [[nodiscard]] std::vector<std::string> loss_names() const override;

  struct MeanLoss {
    double mlm = 0, nsp = 0;       // nsp: of the sentence pairs, 0 without them
    std::vector<double> mlm_sums;  // loss of all masked tokens of each source, with sum_losses_by_source()
  };
  /// take_mean_terms() by their names.
  MeanLoss take_mean_loss();
  /// From now on adds up the losses of each of `sources` sources; batches must have masked_sources.
  void sum_losses_by_source(int64_t sources);

  BertForPreTraining model;

 private:
  TrainingStep(const PretrainConfig& config, BertForPreTraining made, c10::Device device,
               c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights);
  std::vector<torch::Tensor> loss_terms(const PackedBatch& batch) override;
  [[nodiscard]] std::vector<torch::Tensor> loss_items(const PackedBatch& batch) const override;

  int64_t vocab_size_;
  std::string pairs_;  // name of the objective; "" without pairs
};

}  // namespace bert
