// One optimizer step: forward, backward, reduction, update. The trainer feeds it from the loader, the benchmark with
// made-up batches.
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
  /// A model with config's initial weights on `device`, its optimizer and loss scaler. `group` is nullptr for one
  /// process. `weights`: a dtype in place of the precision's, fp64 to see what is exact. Throws ConfigError when the
  /// optimizer's state is to be sharded over more ranks than there are parameters.
  TrainingStep(const PretrainConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
               std::optional<c10::ScalarType> weights = {});

  /// Runs this rank's micro-batches of one global batch, which has `of_all_ranks` micro-batches (0: each rank has as
  /// many), and applies one update, or skips it when a gradient is not finite. Gradients stay until the next one. Does
  /// not wait for the device.
  void run(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks = 0);

  /// Forward under the run's autocast. With gradients unless the caller has switched them off.
  PretrainingOutput forward(const PackedBatch& batch);

  struct MeanLoss {
    double mlm = 0, nsp = 0;
  };
  /// The steps' losses, their mean since the last call: the average over all ranks that the gradient is of. Every rank
  /// must call it. Waits for the device.
  MeanLoss take_mean_loss();
  /// Waits for the device.
  [[nodiscard]] int64_t applied_steps() const;
  /// The last steps tried that were skipped. Waits for the device.
  [[nodiscard]] int64_t consecutive_skips() const;
  /// Of the last step tried. Waits for the device.
  [[nodiscard]] double last_learning_rate() const;

  /// Sums of each rank's numbers, on the CPU; every rank must call it. Waits for the device where there are several
  /// ranks.
  [[nodiscard]] torch::Tensor sum_over_ranks(torch::Tensor tensor) const;
  [[nodiscard]] int64_t sum_over_ranks(int64_t value) const;
  /// DataParallel::exposed_ms() of the last step. Waits for the device.
  [[nodiscard]] double exposed_communication_ms() const { return parallel_.exposed_ms(); }
  /// Throws ConfigError when skipped steps say that the run cannot go on: Note [Endless overflow] in optim/amp.h. Waits
  /// for the device.
  void check_progress() const;
  /// What decays, and at which rate: describe() in optim/optimizer.h.
  [[nodiscard]] std::string parameter_report() const { return parameter_report_; }
  /// The phase 1 to phase 2 transition: next_phase() in optim/optimizer_state.h. Before the first step.
  void start_phase(const EarlierRun& earlier);
  /// Rank 0's weights on every rank: after they were loaded, before the first step.
  void broadcast_parameters();
  /// Compares the weights of all ranks bit by bit. Throws PeerError with the first parameter that differs and its
  /// ranks.
  void check_parameters() const;

  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] int rank() const { return parallel_.rank(); }
  [[nodiscard]] int world_size() const { return parallel_.world_size(); }

  BertForPreTraining model;
  std::unique_ptr<BertOptimizer> optimizer;
  GradScaler scaler;

 protected:
  /// Forward and loss of one micro-batch. A benchmark puts the loss of a plainer program in its place.
  virtual PretrainingLoss loss(const PackedBatch& batch);

  Precision precision_;
  int64_t vocab_size_;

 private:
  /// What the other members are made of.
  struct Parts {
    BertForPreTraining model;
    std::vector<NamedParameter> parameters;
    std::vector<int> owners;  // of the parameters' optimizer state, where it is sharded
  };
  static Parts make_parts(const PretrainConfig& config, c10::Device device,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::optional<c10::ScalarType> weights);
  TrainingStep(const PretrainConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group,
               Parts parts);

  /// Factors of the two losses of each micro-batch in the gradient of the step: fp32 scalars on the device.
  struct LossWeights {
    torch::Tensor nsp;               // 1 / micro-batches of all ranks
    std::vector<torch::Tensor> mlm;  // the same, or the share of the step's masked tokens (optimizer.average =
                                     // masked_tokens)
  };
  [[nodiscard]] LossWeights loss_weights(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks);

  c10::Device device_;
  OptimizerConfig optimizer_config_;
  bool average_masked_tokens_;
  LrSchedule schedule_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<NamedParameter> parameters_;
  DataParallel parallel_;
  std::string parameter_report_;
  torch::Tensor learning_rate_;  // fp32 scalar
  torch::Tensor loss_sum_;       // [2] fp32: mlm, nsp, each step's weighted as its gradient
  double steps_ = 0;             // in loss_sum_
};

}  // namespace bert
