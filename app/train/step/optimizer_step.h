// One optimizer step over any model with a loss: forward, backward, reduction, update.
//
// Note [Kinds of runs]
// Pre-training and fine-tuning are one program. Each part of a run has a base that the loop knows, and a kind that fills
// in what differs:
//
//   base                                            pre-training              fine-tuning (app/finetune)
//   RunConfig       app/config/run_config.h         PretrainConfig            FinetuneConfig
//   OptimizerStep   this file                       TrainingStep              FinetuningStep
//   StepLoader      data/loader/global_step.h       PretrainingDataLoader     TaskLoader
//   RunState        run_state.h                     PretrainingRun            FinetuningRun
//
// A RunConfig has the settings of the loop: steps, batches, intervals, optimizer, ranks. An OptimizerStep turns
// PackedBatches into gradients and an update; a kind gives the model and the terms of its loss. A BatchLoader gives the
// micro-batches of a step, and a position to go on from. A RunState is the rest of a run: it opens the inputs, starts from
// other weights, fills in its part of state.json, and evaluates. The trainer, the log, checkpoints, resumption, signals and
// ranks see the bases alone.
#pragma once

#include <c10/core/Device.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "app/config/run_config.h"
#include "app/train/step/step_copies.h"
#include "app/train/step/step_graphs.h"
#include "cuda_ext/packed_batch.h"
#include "data/loader/global_step.h"
#include "optim/amp.h"
#include "optim/data_parallel.h"
#include "optim/fp8_scaler.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "optim/optimizer_state.h"

namespace bert {

struct BertEncoderImpl;

class OptimizerStep {
 public:
  virtual ~OptimizerStep() = default;
  OptimizerStep(const OptimizerStep&) = delete;
  OptimizerStep& operator=(const OptimizerStep&) = delete;

  /// Runs this rank's micro-batches of one global batch and applies one update; skips the update if a gradient is not
  /// finite. `of_all_ranks` is the number of micro-batches of all ranks; 0: every rank has as many as this one.
  /// Gradients stay until the next call. Does not wait for the device.
  void run(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks = 0);
  /// The same for a step of a loader: Note [Copies of a step] in step_copies.h; with graphs after use_graphs().
  void run(GlobalStep step);
  /// From now on run(GlobalStep) replays graphs: Note [Graphs of a step] in step_graphs.h. `required`: c10::Error if that
  /// cannot be; else `say` gets the reason. Steps must be of static batches, and their loss must depend on nothing that the
  /// host knows beside them.
  void use_graphs(bool required, std::function<void(const std::string&)> say);
  /// StepGraphs::report(); "" without use_graphs().
  [[nodiscard]] std::string graph_report() const { return graphs_ ? graphs_->report() : ""; }

  /// The names of the terms of the loss in the log. A loss of one term has no names.
  [[nodiscard]] virtual std::vector<std::string> loss_names() const = 0;
  struct MeanTerms {
    std::vector<double> terms;  // mean of each term of the loss
    std::vector<double> sums;   // of extra_sums_
  };
  /// The means of the steps since the last call, averaged over all ranks with the weights of the gradient. Every rank
  /// must call it. Waits for the device.
  MeanTerms take_mean_terms();
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
  /// not fit. Scales of FP8 that `optimizer_state` lacks stay as they are, and those that this run lacks are left out.
  void load(const StateDict& weights, const StateDict& optimizer_state);
  /// The optimizer's state and the scales of FP8. Every rank calls it; a sharded state is gathered by rank 0.
  [[nodiscard]] StateDict optimizer_state() const;
  /// The warm-up ends at step `end`, as with_warmup() in optim/lr_schedule.h.
  void set_warmup(int64_t end) { schedule_ = with_warmup(schedule_, end); }
  /// The decay of the schedule wsd lasts from step `begin` to step `end`, as with_decay() in optim/lr_schedule.h.
  void set_decay(int64_t begin, int64_t end) { schedule_ = with_decay(schedule_, begin, end); }
  /// load() of the begin of the next phase after an earlier run: next_phase() in optim/optimizer_state.h. Call it before
  /// the first step.
  void start_phase(const EarlierRun& earlier);
  /// Sends the weights of rank 0 to every rank. Call it before the first step, also after load().
  void broadcast_parameters();
  /// Compares the weights of all ranks bit by bit. Throws PeerError with the first parameter that differs and the
  /// ranks.
  void check_parameters() const;

  /// The parameters under their names, in the order of the module.
  [[nodiscard]] const std::vector<NamedParameter>& parameters() const { return parameters_; }
  [[nodiscard]] const OptimizerConfig& optimizer_config() const { return optimizer_config_; }
  /// False if only another rank has this parameter's gradient, summed over all ranks: its optimizer state is there.
  [[nodiscard]] bool has_whole_gradient(const std::string& parameter) const;
  /// The factor of the loss in the last step, by which its gradients are too large. Waits for the device.
  [[nodiscard]] double last_loss_scale() const;

  [[nodiscard]] torch::nn::Module& module() { return *module_; }
  [[nodiscard]] const torch::nn::Module& module() const { return *module_; }
  [[nodiscard]] c10::Device device() const { return device_; }
  [[nodiscard]] int rank() const { return parallel_.rank(); }
  [[nodiscard]] int world_size() const { return parallel_.world_size(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;

 public:
  std::unique_ptr<BertOptimizer> optimizer;
  GradScaler scaler;

 protected:
  /// Moves `module`, which has its initial weights in fp32 on the CPU, to `device` in the dtype of the run's weights;
  /// makes the optimizer and the loss scaler. `group` is nullptr for one process. `weights` is a dtype in place of the
  /// precision's. Throws ConfigError if the optimizer state is to be sharded over more ranks than there are parameters.
  OptimizerStep(const RunConfig& config, std::shared_ptr<torch::nn::Module> module, c10::Device device,
                c10::intrusive_ptr<c10d::ProcessGroup> group, std::optional<c10::ScalarType> weights);

  /// Called once in each step, before loss_terms() of its micro-batches. Every rank calls it.
  virtual void prepare(std::span<const PackedBatch> /*micro_batches*/, int64_t /*of_all_ranks*/) {}
  /// Forward and loss of one micro-batch: the terms of the loss, each the mean over its items (masked tokens, sequences,
  /// answers), fp32 scalars on the device. A kind of step always has as many terms, in one order.
  virtual std::vector<torch::Tensor> loss_terms(const PackedBatch& batch) = 0;
  /// The number of items of each term, fp64 scalars on the device. Does not wait for the device.
  [[nodiscard]] virtual std::vector<torch::Tensor> loss_items(const PackedBatch& batch) const = 0;
  /// With the precision fp8: from now on the products of `encoder` are in FP8 in training. Throws ConfigError if the device
  /// lacks them, or if first_last_layers_bf16 leaves no layer to them.
  void use_fp8(const RunConfig& config, BertEncoderImpl& encoder);
  /// A number of items that the host knows.
  [[nodiscard]] torch::Tensor known_items(int64_t count) const;
  /// Makes dropout on CUDA a function of the seed and the number of the batch's first sequence.
  void seed_dropout(const PackedBatch& batch, int64_t seed) const;

  Precision precision_;
  torch::Tensor extra_sums_;  // fp64, that a kind of step adds up itself; undefined: none

 private:
  /// Objects from which the constructor makes the other members.
  struct Parts {
    std::shared_ptr<torch::nn::Module> module;
    std::vector<NamedParameter> parameters;
    std::vector<int> owners;          // rank that owns each parameter's optimizer state; empty unless it is sharded
    StateDict initial = StateDict();  // fp32 weights of a model in fp16 or bf16, before they were rounded; else empty
  };
  static Parts make_parts(const RunConfig& config, std::shared_ptr<torch::nn::Module> module, c10::Device device,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& group, std::optional<c10::ScalarType> weights);
  OptimizerStep(const RunConfig& config, c10::Device device, c10::intrusive_ptr<c10d::ProcessGroup> group, Parts parts);

  /// The factors of the terms in the loss of the step, fp32 [micro-batches, terms] or [1] on the device: 1 / number of
  /// micro-batches of all ranks; with optimizer.average = masked_tokens the shares of the step's items.
  [[nodiscard]] torch::Tensor loss_weights(std::span<const PackedBatch> micro_batches, int64_t of_all_ranks) const;

  /// Forward, backward and the sums of one micro-batch, which is on the device. `weights` of its terms: [1] or [terms].
  void micro_step(const PackedBatch& batch, const torch::Tensor& weights);
  void update();
  /// A step without graphs and again with them; what it leaves is compared.
  void compare_graphs(const GlobalStep& step);
  /// All tensors that a step changes, and their names; the sums of the losses last.
  [[nodiscard]] StateDict step_state() const;

  c10::Device device_;
  int64_t seed_;
  OptimizerConfig optimizer_config_;
  AmpConfig amp_config_;
  bool average_items_;
  LrSchedule schedule_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<NamedParameter> parameters_;
  const std::vector<int> owners_;  // Parts::owners
  DataParallel parallel_;
  std::string parameter_report_;
  std::optional<Fp8Scaler> fp8_;
  torch::Tensor learning_rate_;  // fp32 scalar
  torch::Tensor loss_sum_;       // [terms] fp32, summed over steps with the weights of the gradient; undefined at first
  double steps_ = 0;             // number of steps in loss_sum_
  std::optional<StepCopies> copies_;  // on CUDA
  std::unique_ptr<StepGraphs> graphs_;
  bool replays_ = false;  // run() replays graphs; they were compared, or are being compared
};

}  // namespace bert
