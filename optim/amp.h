// Automatic mixed precision: autocast scopes and the loss scaler, for CPU and CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "cuda_ext/multi_tensor.h"
#include "optim/config.h"
#include "optim/optimizer.h"

namespace bert {

enum class Precision : int8_t { kFp32, kTf32, kBf16, kFp16, kBf16Weights, kFp16Weights };

/// fp32, tf32, bf16, fp16 (autocast), bf16-weights, fp16-weights (the weights themselves, fp32 masters in the
/// optimizer). Throws c10::Error with the accepted words.
[[nodiscard]] Precision parse_precision(const std::string& word);

/// The dtype of the model's parameters: fp32, but for the two *-weights.
[[nodiscard]] at::ScalarType weights_dtype(Precision precision);

/// What matrix products compute in: fp32 (also for tf32), bf16 or fp16.
[[nodiscard]] at::ScalarType compute_dtype(Precision precision);

/// Whether gradients can underflow without a loss scale: fp16 and fp16-weights.
[[nodiscard]] bool needs_loss_scale(Precision precision);

/// TF32 in fp32 GEMMs on CUDA for tf32, full fp32 for the others. A setting of the whole process, which lasts.
void set_matmul_precision(Precision precision);

/// Autocast to bf16 or fp16 for Precision kBf16 or kFp16 in its scope, and no autocast for the others; kTf32 and kFp32
/// also set the precision of fp32 GEMMs, in the whole process, as set_matmul_precision() does. What was set before
/// comes back at its end. Casts of weights are cached within the outermost scope. Forward and loss belong inside,
/// backward outside: its products have the precision that is set there, so for TF32 in them too call
/// set_matmul_precision(Precision::kTf32) once.
///
/// LayerNorm, softmax and cross entropy of cuda_ext/ops.h compute their statistics and sums in fp32 on every device,
/// from inputs of any dtype; the first two return the input's dtype, the last fp32. LibTorch's own, as
/// torch::nn::LayerNorm calls them, differ by device: on CUDA autocast gives layer_norm and softmax fp32, on the CPU
/// they return what they were given, bf16 or fp16 behind a linear layer, and only cross_entropy_loss gets fp32.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device_type, Precision precision);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  void set_dtype(at::ScalarType dtype) const;

  at::DeviceType device_type_;
  bool previous_enabled_;
  at::ScalarType previous_dtype_;
  std::string previous_matmul_precision_;  // "" where it was left
};

/// Dynamic loss scaling: PyTorch's torch.amp.GradScaler, transition by transition but for Note [Differences from
/// torch.amp.GradScaler], with its defaults in AmpConfig.
/// After a step without inf or NaN in the gradients a counter grows; at growth_interval the scale is multiplied by
/// growth_factor and the counter starts again. After a step with one the step is skipped, the scale is multiplied by
/// backoff_factor, and the counter starts again. A scale that would grow to inf stays. AmpConfig::dynamic off: the
/// scale stays at init_scale, and is not taken from a loaded state.
///
/// Scale, counters and found_inf are tensors on the device, and the accessors give the live ones. With a BertOptimizer
/// no call synchronises with the host; a step of any other torch::optim::Optimizer reads found_inf once, as PyTorch's
/// does. Works on CPU tensors. Not enabled: scale() returns the loss as it is and step() only steps (a BertOptimizer
/// still skips what is not finite, and update() counts it).
///
/// Note [Endless overflow]
/// PyTorch's scale falls without end where every step overflows (DeepLearningExamples issue 252: to 1e-12). Here
/// consecutive_skips() counts, and check_progress() throws below AmpConfig::min_scale or from max_consecutive_skips on.
/// Neither changes the scale, so its values stay PyTorch's. check_progress() reads from the device: call it where the
/// host waits anyway.
///
/// Note [Differences from torch.amp.GradScaler]
/// - Whether a BertOptimizer's step was skipped is what the optimizer says, after the step: inf that appears in a
///   gradient after unscale_(), and finite gradients whose norm fp32 cannot hold, skip it and lower the scale.
///   PyTorch's sees neither.
/// - A BertOptimizer's step() without unscale_() unscales within the update: fp16 gradients are taken, and .grad stays
///   scaled. PyTorch's unscales in place before, and refuses fp16.
/// - Without a scale (not enabled) skips are counted all the same.
/// - state_dict() has two entries of torch's five. A factor or an interval in a state takes the place of the
///   configuration's, so a run whose configuration was changed would go on with the old one.
/// - Factors and interval have no setters: they are configuration. update() takes a number, not a tensor.
/// - load_state_dict() refuses what is out of range, and bounds the tracker by the interval.
///
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);       // only where gradients are looked at or clipped between backward and step
///   scaler.step(optimizer, lr);       // lr: fp32 scalar; without it the rate of each group's options
///   scaler.update();
///
/// Source: Micikevicius et al. 2018, section 3.2; torch/amp/grad_scaler.py (2.11) for the order of events.
class GradScaler {
 public:
  /// Throws c10::Error when a value is out of its range.
  GradScaler(const AmpConfig& config, at::Device device, bool enabled = true);

  /// loss times the scale; loss fp32, or a lower precision that is promoted.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the optimizer's gradients by the scale in place and records inf and NaN. Throws when called twice before
  /// update(), or after step(); and for fp16 gradients, as PyTorch's does: what fp16 cannot hold without the scale would
  /// be lost. A BertOptimizer's step() without it unscales them in fp32. Without any gradient there is nothing to
  /// record, and step() throws.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps unless a gradient is inf or NaN. Throws when called twice before update(), or when no parameter of the
  /// optimizer has a gradient. The second is the first, without a rate, where the optimizer is a BertOptimizer.
  void step(BertOptimizer& optimizer, const at::Tensor& lr = {});
  void step(torch::optim::Optimizer& optimizer);

  /// Moves the scale by what the steps since the last update() found. Throws when there was none and the scaler is
  /// enabled.
  void update();
  /// Sets the scale to `new_scale`, also where it is not dynamic; the tracker stays, and skips are counted. Nothing but
  /// the counting when not enabled. Throws c10::Error when it is no normal fp32 number above 0.
  void update(double new_scale);

  /// For an optimizer that is no torch::optim::Optimizer: what a step that was done without step() found (found_inf,
  /// fp32 scalar; not 0: it was skipped), for update(). Its gradients are those of scale() times inv_scale().
  void record(const at::Tensor& found_inf);

  /// Throws c10::Error that names the limit, the optimizer's first gradient that is not finite, and what to do, when
  /// the scale has fallen below min_scale or max_consecutive_skips updates in a row were skips. Gradients must still be
  /// those of the last step. Synchronises.
  void check_progress(const BertOptimizer& optimizer) const;

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] at::Tensor current_scale() const { return scale_; }                  // fp32 scalar
  [[nodiscard]] at::Tensor growth_tracker() const { return growth_tracker_; }        // int32 scalar
  [[nodiscard]] at::Tensor consecutive_skips() const { return consecutive_skips_; }  // fp32 scalar
  [[nodiscard]] at::Tensor inv_scale() const { return inv_scale_; }                  // fp32 scalar, 1 when not enabled

  /// "scale" and "growth_tracker", the live tensors; factors and interval are configuration. Empty when not enabled.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes "scale" and "growth_tracker", or the entries of torch's state as scalars: "_growth_tracker" for
  /// "growth_tracker", and "growth_factor", "backoff_factor" and "growth_interval", which then take the place of the
  /// configuration's. Nothing when not enabled. Throws c10::Error, before anything changes, when "scale" or the tracker
  /// is missing, or a value is no scalar or out of its range (scale finite and above 0, tracker not negative, the
  /// others as in AmpConfig). A tracker at or above the interval, which may have become shorter, stands for one clean
  /// step before growth; PyTorch's, compared for equality alone, would never come to it. Synchronises.
  void load_state_dict(const StateDict& state);
  /// Goes on counting from so many skips in a row, also when not enabled: they are no part of torch's state.
  void continue_skips(int64_t consecutive_skips);

 private:
  enum class Stage : int8_t { kReady, kUnscaled, kStepped };
  struct OptimizerRecord {
    Stage stage = Stage::kReady;
    at::Tensor found_inf;           // of this step, undefined before
    at::Tensor unscaled_found_inf;  // what unscale_() found
    ops::MultiTensor gradients;     // for unscale_()
  };

  OptimizerRecord& begin_step(torch::optim::Optimizer& optimizer);
  /// What the steps since the last update() found, added up, and counted as a skip or none; undefined without a step.
  at::Tensor count_skips();
  /// The step is over, or forgotten.
  void reset();

  AmpConfig config_;
  bool enabled_;
  at::Tensor scale_, inv_scale_, growth_tracker_;
  at::Tensor consecutive_skips_, skipped_, one_;  // fp32: of the updates so far; 1 or 0 of the last one; 1
  at::Tensor recorded_;                           // found_inf of record(), or undefined
  std::unordered_map<const torch::optim::Optimizer*, OptimizerRecord> records_;
};

}  // namespace bert
