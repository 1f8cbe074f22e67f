// The scales of products in FP8.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "cuda_ext/fp8_linear.h"
#include "cuda_ext/state_dict.h"

namespace bert {

/// Delayed scaling of the linear layers of a run: each tensor of a product has the scale that the last steps call for.
///
/// After a step, the greatest absolute value of each tensor in the step enters its history of kWindow steps. With the
/// greatest value of the history, amax, the scale of the next step is (largest number of the format) / amax. It stays
/// where amax is 0, and is the largest fp32 number where it would be infinite. The first step has the scale 1.
/// Source: Transformer Engine, recipe.DelayedScaling with its defaults (amax_compute_algo max, margin 0, a history of
/// 1,024); its function _default_sf_compute.
///
/// Note [Differences from Transformer Engine's DelayedScaling]
/// - A scale holds for a whole step of the optimizer and not for a micro-batch, and the greatest value is that of all
///   micro-batches and ranks. So scales do not depend on their numbers.
/// - A greatest value that is not finite enters the history as 0: else the scale would stay for kWindow steps.
///
/// Scales and history are tensors on the device, and no call waits for it.
class Fp8Scaler {
 public:
  static constexpr int64_t kWindow = 1024;

  Fp8Scaler(int64_t layers, at::Device device);

  /// The live scales of linear layer `layer`.
  [[nodiscard]] ops::Fp8Scaling scaling(int64_t layer) const;
  /// The greatest values of the step so far, as int32, whose order is theirs, NaN above all: [layers, 3]. With several
  /// ranks: to be made the maximum of all ranks' before update().
  [[nodiscard]] at::Tensor amaxes() const;
  /// Ends a step.
  void update();

  /// "fp8.amax_history" [kWindow, layers, 3], the newest step first, and "fp8.scales" [layers, 2, 3]: the live tensors.
  [[nodiscard]] StateDict state_dict() const;

 private:
  at::Tensor history_, scales_, amaxes_;
  at::Tensor most_;  // [3]: the largest numbers of the formats
};

/// True for the names of Fp8Scaler::state_dict().
[[nodiscard]] bool is_fp8_state(const std::string& name);

}  // namespace bert
