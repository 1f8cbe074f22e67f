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

/// The dtype of the model's parameters: fp32, except for the two *-weights.
[[nodiscard]] at::ScalarType weights_dtype(Precision precision);

/// The dtype of matrix products: fp32 (also for tf32), bf16 (also for fp8) or fp16.
[[nodiscard]] at::ScalarType compute_dtype(Precision precision);

/// True if gradients can underflow without a loss scale: fp16 and fp16-weights.
[[nodiscard]] bool needs_loss_scale(Precision precision);

/// For tf32: fp32 GEMMs on CUDA use TF32. For the others: full fp32. The setting is global and stays until the next
/// call.
void set_matmul_precision(Precision precision);

/// In its scope: autocast to bf16 or fp16 for Precision kBf16, kFp8 or kFp16, no autocast for the others. kTf32 and kFp32
/// also set the precision of fp32 GEMMs of the whole process, as set_matmul_precision() does. The destructor restores
/// the earlier settings. Casts of weights are cached within the outermost scope.
/// Forward and loss belong inside of the scope, backward outside. Products of backward use the precision that is set
/// there, so for TF32 in backward call set_matmul_precision(Precision::kTf32) once.
///
/// LayerNorm, softmax and cross entropy of cuda_ext/ops.h compute their statistics and sums in fp32 on every device,
/// from inputs of any dtype. The first two return the dtype of the input, the last returns fp32. LibTorch's own
/// operators, which torch::nn::LayerNorm calls, differ by device: on CUDA autocast gives layer_norm and softmax fp32;
/// on the CPU they return the dtype of the input, which is bf16 or fp16 behind a linear layer, and only
/// cross_entropy_loss gets fp32.
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
  std::string previous_matmul_precision_;  // "" if it was not changed
};

/// Dynamic loss scaling: PyTorch's torch.amp.GradScaler, transition by transition except for Note [Differences from
/// torch.amp.GradScaler], with its defaults in AmpConfig.
/// After a step without inf or NaN in the gradients a counter grows. At growth_interval the scale is multiplied by
/// growth_factor and the counter starts again. A step with inf or NaN is skipped, the scale is multiplied by
/// backoff_factor, and the counter starts again. The scale never grows to inf. With AmpConfig::dynamic off, the scale
/// stays at init_scale and is not taken from a loaded state.
///
/// Scale, counters and found_inf are tensors on the device; the accessors return the live tensors. With a BertOptimizer
/// no call synchronises with the host. A step of any other torch::optim::Optimizer reads found_inf once, as PyTorch's
/// does. Works on CPU tensors. If not enabled, scale() returns the loss unchanged and step() only steps (a
/// BertOptimizer still skips gradients that are not finite, and update() counts the skip).
///
/// Note [Endless overflow]
/// If every step overflows, PyTorch's scale falls without end (DeepLearningExamples issue 252: to 1e-12). Here
/// consecutive_skips() counts such steps, and check_progress() throws below AmpConfig::min_scale or from
/// max_consecutive_skips on. Neither changes the scale, so its values stay PyTorch's. check_progress() reads from the
/// device: call it at a point where the host waits anyway.
///
/// Note [Differences from torch.amp.GradScaler]
/// - After its step, a BertOptimizer itself reports a skip: inf that appears in a gradient after unscale_(), and finite
///   gradients whose norm fp32 cannot hold, skip the step and lower the scale. PyTorch's scaler sees neither.
/// - A BertOptimizer's step() without unscale_() unscales within the update: fp16 gradients are accepted, and .grad
///   stays scaled. PyTorch's scaler unscales in place before the step, and refuses fp16.
/// - Skips are counted even without a scale (not enabled).
/// - state_dict() has two of torch's five entries. A loaded factor or interval replaces the configuration's, so a run
///   whose configuration was changed would continue with the old values.
/// - Factors and interval have no setters: they are configuration. update() takes a number, not a tensor.
/// - load_state_dict() refuses values out of range, and limits the tracker to the interval.
///
///   scaler.scale(loss).backward();
///   scaler.unscale_(optimizer);  // only to look at gradients or clip them between backward and step
///   scaler.step(optimizer, lr);  // lr: fp32 scalar; undefined: the rate in each group's options
///   scaler.update();
///
/// Source: Micikevicius et al. 2018, section 3.2; torch/amp/grad_scaler.py (2.11) for the order of events.
class GradScaler {
 public:
  /// Throws c10::Error if a value is out of its range.
  GradScaler(const AmpConfig& config, at::Device device, bool enabled = true);

  /// loss times the scale. loss is fp32, or of a lower precision, which is converted to fp32.
  [[nodiscard]] at::Tensor scale(const at::Tensor& loss) const;

  /// Divides the optimizer's gradients by the scale in place and records inf and NaN. Throws if called twice before
  /// update(), if called after step(), and for fp16 gradients, as PyTorch does: without the scale fp16 would lose small
  /// values. step() of a BertOptimizer without this call unscales them in fp32. If no parameter has a gradient, nothing
  /// is recorded, and step() throws.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps unless a gradient is inf or NaN. Throws if called twice before update(), or if no parameter of the optimizer
  /// has a gradient. If `optimizer` is a BertOptimizer, the second overload calls the first with `lr` undefined.
  void step(BertOptimizer& optimizer, const at::Tensor& lr = {});
  void step(torch::optim::Optimizer& optimizer);

  /// Changes the scale by the results of the steps since the last update(). Throws if there was no step and the scaler
  /// is enabled.
  void update();
  /// Sets the scale to `new_scale`, even if the scaler is not dynamic. The tracker stays, and skips are counted. If not
  /// enabled, only counts skips. Throws c10::Error if new_scale is not a normal fp32 number above 0.
  void update(double new_scale);

  /// For an optimizer that is not a torch::optim::Optimizer: passes the result of a step that was made without step()
  /// to update(). found_inf is an fp32 scalar, not 0 if the step was skipped. The gradients are those of scale() times
  /// inv_scale().
  void record(const at::Tensor& found_inf);

  /// If the scale is below min_scale or the last max_consecutive_skips updates were skips: throws c10::Error that names
  /// the limit, the first gradient of the optimizer that is not finite, and a remedy. The gradients must still be those
  /// of the last step. Synchronises.
  void check_progress(const BertOptimizer& optimizer) const;

  [[nodiscard]] bool enabled() const { return enabled_; }
  [[nodiscard]] at::Tensor current_scale() const { return scale_; }                  // fp32 scalar
  [[nodiscard]] at::Tensor growth_tracker() const { return growth_tracker_; }        // int32 scalar
  [[nodiscard]] at::Tensor consecutive_skips() const { return consecutive_skips_; }  // fp32 scalar
  [[nodiscard]] at::Tensor inv_scale() const { return inv_scale_; }                  // fp32 scalar, 1 when not enabled

  /// "scale" and "growth_tracker", the live tensors. Factors and interval are configuration. Empty if not enabled.
  [[nodiscard]] StateDict state_dict() const;
  /// Takes "scale" and "growth_tracker", or the entries of torch's state as scalars: "_growth_tracker" for
  /// "growth_tracker", and "growth_factor", "backoff_factor" and "growth_interval", which replace the configuration's
  /// values. Does nothing if not enabled. A tracker at or above the interval, which may have become shorter, leaves one
  /// clean step before growth; PyTorch tests for equality alone and would never grow again. Synchronises.
  /// Throws c10::Error, before anything changes, if "scale" or the tracker is missing, or if a value is not a scalar or
  /// out of its range (scale finite and above 0, tracker not negative, the others as in AmpConfig).
  void load_state_dict(const StateDict& state);
  /// Sets the number of skips in a row from which counting continues, even if not enabled. It is not part of torch's
  /// state.
  void continue_skips(int64_t consecutive_skips);

 private:
  enum class Stage : int8_t { kReady, kUnscaled, kStepped };
  struct OptimizerRecord {
    Stage stage = Stage::kReady;
    at::Tensor found_inf;           // of this step; undefined before the step
    at::Tensor unscaled_found_inf;  // the result of unscale_()
    ops::MultiTensor gradients;     // for unscale_()
  };

  OptimizerRecord& begin_step(torch::optim::Optimizer& optimizer);
  /// Adds up the results of the steps since the last update() and counts a skip or none. Undefined without a step.
  at::Tensor count_skips();
  /// Ends the step.
  void reset();

  AmpConfig config_;
  bool enabled_;
  at::Tensor scale_, inv_scale_, growth_tracker_;
  at::Tensor consecutive_skips_, skipped_, one_;  // fp32: skips in a row; 1 after a skip, else 0; the constant 1
  at::Tensor recorded_;                           // found_inf of record(), or undefined
  std::unordered_map<const torch::optim::Optimizer*, OptimizerRecord> records_;
};

}  // namespace bert
