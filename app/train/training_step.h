// One optimizer step: forward, backward, reduction, update. The trainer passes batches of the loader, the benchmark
// passes random batches.
#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "app/config/pretrain_config.h"
#include "cuda_ext/packed_batch.h"
#include "model/bert.h"
#include "optim/amp.h"
#include "optim/data_parallel.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "optim/optimizer_state.h"

namespace bert {

class TrainingStep {
 public:
  /// Makes a model with the initial weights of `config` on `device`, its optimizer and its loss scaler. The model has a
  /// sentence-pair head if objective_of(config) has pairs. `group` is
  /// nullptr for one process. `weights` is a dtype in place of the precision's, for example fp64 for exact comparisons.
  /// Throws ConfigError if the optimizer state is to be sharded over more ranks than there are parameters.
  TrainingStep(const PretrainConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
               std::optional<c10::ScalarType> weights = {});

  /// Runs this rank's micro-batches of one global batch and applies one update; skips the update if a gradient is not
  /// finite. `of_all_ranks` is the number of micro-batches of all ranks; 0: every rank has as many as this one.
  /// Gradients stay until the next call. Does not wait for the device.
  void run(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks = 0);

  /// Forward under the autocast of the run. Gradient mode is that of the caller.
  PretrainingOutput forward(const PackedBatch& batch);

  struct MeanLoss {
    double mlm = 0, nsp = 0;       // nsp: of the sentence pairs, 0 without them
    std::vector<double> mlm_sums;  // loss of all masked tokens of each source, with tell_sources_apart()
  };
  /// Mean losses of the steps since the last call, averaged over all ranks with the weights of the gradient. Every rank
  /// must call it. Waits for the device.
  MeanLoss take_mean_loss();
  /// From now on adds up the losses of each of `sources` sources; batches must have masked_sources.
  void tell_sources_apart(int64_t sources);
  /// Number of applied updates. Waits for the device.
  [[nodiscard]] int64_t applied_steps() const;
  /// Number of skipped steps since the last applied one. Waits for the device.
  [[nodiscard]] int64_t consecutive_skips() const;
  /// Learning rate of the last step that was tried. Waits for the device.
  [[nodiscard]] double last_learning_rate() const;

  /// Sum over all ranks, on the CPU. Every rank must call it. With several ranks it waits for the device.
  [[nodiscard]] torch::Tensor sum_over_ranks(torch::Tensor tensor) const;
  [[nodiscard]] int64_t sum_over_ranks(int64_t value) const;
  /// DataParallel::exposed_ms() of the last step. Waits for the device.
  [[nodiscard]] double exposed_communication_ms() const { return parallel_.exposed_ms(); }
  /// Throws ConfigError if skipped steps show that the run cannot continue: Note [Endless overflow] in optim/amp.h.
  /// Waits for the device.
  void check_progress() const;
  /// The parameter groups with their decay and rate: describe() in optim/optimizer.h.
  [[nodiscard]] std::string parameter_report() const { return parameter_report_; }
  /// Gives every rank the weights and the optimizer's state that rank 0 passes. Every rank calls it with the same
  /// entries; those of the other ranks need no values (device meta). Throws c10::Error on every rank if the entries do
  /// not fit.
  void load(const StateDict& weights, const StateDict& optimizer_state);
  /// load() of the begin of the next phase after an earlier run: next_phase() in optim/optimizer_state.h. Call it before
  /// the first step.
  void start_phase(const EarlierRun& earlier);
  /// Sends the weights of rank 0 to every rank. Call it before the first step, also after load().
  void broadcast_parameters();
  /// Compares the weights of all ranks bit by bit. Throws PeerError with the first parameter that differs and the
  /// ranks.
  void check_parameters() const;

  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] int rank() const { return parallel_.rank(); }
  [[nodiscard]] int world_size() const { return parallel_.world_size(); }

  BertForPreTraining model;
  std::unique_ptr<BertOptimizer> optimizer;
  GradScaler scaler;

 protected:
  /// Forward and loss of one micro-batch. The ablation benchmark overrides it.
  virtual PretrainingLoss loss(const PackedBatch& batch);

  Precision precision_;
  int64_t vocab_size_;

 private:
  /// Objects from which the constructor makes the other members.
  struct Parts {
    BertForPreTraining model;
    std::vector<NamedParameter> parameters;
    std::vector<int> owners;  // rank that owns each parameter's optimizer state; empty unless it is sharded
  };
  static Parts make_parts(const PretrainConfig& config, c10::Device device,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::optional<c10::ScalarType> weights);
  TrainingStep(const PretrainConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
               Parts parts);

  /// Factors of the two losses of each micro-batch in the loss of the step: fp32 scalars on the device.
  struct LossWeights {
    // 1 / number of micro-batches of all ranks; with optimizer.average = masked_tokens the shares of the step's sequences
    // and masked tokens
    std::vector<torch::Tensor> nsp, mlm;
  };
  [[nodiscard]] LossWeights loss_weights(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks);

  c10::Device device_;
  OptimizerConfig optimizer_config_;
  bool average_masked_tokens_;
  LrSchedule schedule_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<NamedParameter> parameters_;
  bool sharded_;  // the optimizer's state is divided among the ranks
  DataParallel parallel_;
  std::string parameter_report_;
  torch::Tensor learning_rate_;  // fp32 scalar
  torch::Tensor loss_sum_;       // [2] fp32: mlm, nsp, summed over steps with the weights of the gradient
  torch::Tensor source_sums_;  // [sources] fp64: MeanLoss::mlm_sums of this rank; undefined unless they are told apart
  double steps_ = 0;           // number of steps in loss_sum_
};

}  // namespace bert
