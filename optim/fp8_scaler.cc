#include "optim/fp8_scaler.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>

#include "cuda_ext/scalar/math.h"

namespace bert {

Fp8Scaler::Fp8Scaler(int64_t layers, at::Device device) {
  constexpr float kInput = kMostOfFp8<Fp8::kE4M3>, kGradient = kMostOfFp8<Fp8::kE5M2>;
  const auto floats = at::TensorOptions().dtype(at::kFloat).device(device);
  history_ = at::zeros({kWindow, layers, 3}, floats);
  scales_ = at::ones({layers, 2, 3}, floats);
  amaxes_ = at::zeros({layers, 3}, floats);
  most_ = at::tensor({kInput, kInput, kGradient}).to(device);
}

ops::Fp8Scaling Fp8Scaler::scaling(int64_t layer) const {
  return {.scales = scales_.select(0, layer), .amaxes = amaxes_.select(0, layer)};
}

at::Tensor Fp8Scaler::amaxes() const { return amaxes_.view(at::kInt); }

void Fp8Scaler::update() {
  constexpr float kLargest = std::numeric_limits<float>::max();
  const at::NoGradGuard no_grad;
  history_.copy_(at::roll(history_, 1, 0));
  history_.select(0, 0).copy_(at::nan_to_num(amaxes_, 0.0, 0.0, 0.0));
  amaxes_.zero_();
  const at::Tensor amax = history_.amax(0), scale = scales_.select(1, 0);
  scale.copy_(at::where(amax > 0, (most_ / amax).clamp_max(kLargest), scale));
  scales_.select(1, 1).copy_(scale.reciprocal());
}

StateDict Fp8Scaler::state_dict() const {
  StateDict state;
  state.insert("fp8.amax_history", history_);
  state.insert("fp8.scales", scales_);
  return state;
}

bool is_fp8_state(const std::string& name) { return name.starts_with("fp8."); }

}  // namespace bert
