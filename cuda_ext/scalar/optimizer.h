// Lists of tensors as plain data, for the optimizer's loops on the CPU and its kernels on CUDA. The tensors are cut
// into chunks. A chunk is the task of a thread or a block, and sums go over chunks in their order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda_ext/scalar/math.h"
#include "cuda_ext/scalar/optimizer_types.h"

namespace bert {

/// A tensor that is normed or unscaled.
struct ListEntry {
  void* data = nullptr;
  ElementType type = ElementType::kFloat;
  bool aligned = false;  // vectors of four elements may be loaded
  int64_t first_chunk = 0, chunks = 0;

  bool operator==(const ListEntry&) const = default;
};

/// A parameter with its gradient, its moments, its moving average (or null) and its low-precision copy (or null).
struct OptimEntry {
  float *param = nullptr, *exp_avg = nullptr, *exp_avg_sq = nullptr, *ema = nullptr;
  const float* grad = nullptr;
  void* copy = nullptr;
  CopyType copy_type = CopyType::kNone;
  bool aligned = false;
  int32_t group = 0;
  int64_t first_chunk = 0, chunks = 0;

  bool operator==(const OptimEntry&) const = default;
};

/// The elements [begin, begin + size) of a tensor.
struct ChunkEntry {
  int64_t begin = 0;
  int32_t size = 0, tensor = 0;
};

/// Appends the chunks of a tensor and returns their number. An empty tensor has one chunk.
inline int64_t append_chunks(int64_t tensor, int64_t numel, int64_t chunk_elements, std::vector<ChunkEntry>& chunks) {
  const int64_t count = std::max<int64_t>((numel + chunk_elements - 1) / chunk_elements, 1);
  for (int64_t begin = 0, i = 0; i < count; ++i, begin += chunk_elements) {
    chunks.push_back({.begin = begin,
                      .size = static_cast<int32_t>(std::min(chunk_elements, numel - begin)),
                      .tensor = static_cast<int32_t>(tensor)});
  }
  return count;
}

enum class UpdateRule : int8_t { kLamb, kAdamw, kStableAdamw };

/// The options of one parameter group: see OptimizerConfig in optim/config.h.
struct UpdateOptions {
  double lr = 0.0;  // used if the step gives no other rate
  double beta1 = 0.0, beta2 = 0.0;
  double beta3 = 0.0;  // weight of the new gradient in exp_avg: 1 - beta1 with gradient averaging, else 1
  double eps = 0.0, weight_decay = 0.0;
  double max_grad_norm = 0.0;  // 0: no clipping
  double clip_eps = 0.0;       // added to the norm that is clipped
  double lr_scale = 1.0;       // the rate is multiplied by it
  double ema_decay = 0.0;      // of the moving averages, if there are any; they begin as the mean of all parameters
  bool bias_correction = true;
  bool decoupled = true;         // decay added to the update (true) or to the gradient before the moments (false)
  bool trust_ratio = true;       // LAMB; false: the ratio is 1
  bool clip_per_tensor = false;  // max_grad_norm bounds each tensor's norm instead of that of all

  bool operator==(const UpdateOptions&) const = default;
};

/// The factor that brings gradients of norm `norm` to max_grad_norm; above 1 for smaller norms. max_grad_norm > 0.
/// Number is double, or at::Tensor for scalars on a device.
template <class Number>
BERT_HOST_DEVICE Number clip_ratio(const UpdateOptions& options, const Number& norm) {
  return options.max_grad_norm / (norm + options.clip_eps);
}

/// The factor that clips gradients of norm `norm`: 1 up to max_grad_norm.
BERT_HOST_DEVICE double clip_coefficient(const UpdateOptions& options, double norm) {
  if (options.max_grad_norm <= 0.0) return 1.0;
  const double ratio = clip_ratio(options, norm);
  return ratio < 1.0 ? ratio : 1.0;
}

/// The factor of the gradients of one tensor. squares: the sum of their squares before unscaling.
BERT_HOST_DEVICE float tensor_multiplier(const UpdateOptions& options, float multiplier, double squares) {
  if (!options.clip_per_tensor) return multiplier;
  return static_cast<float>(multiplier * clip_coefficient(options, sqrt(squares) * multiplier));
}

/// 1 - beta^step in fp64.
BERT_HOST_DEVICE double bias_correction(double beta, int64_t step) {
  return -expm1(static_cast<double>(step) * log(beta));
}

/// The share of the new parameters in their moving average.
BERT_HOST_DEVICE double ema_share(double ema_decay, int64_t step) {
  const double mean = 1.0 / static_cast<double>(step), share = 1.0 - ema_decay;
  return mean > share ? mean : share;
}

/// The numbers of a step for the loops. norm: of the unscaled gradients; step: 1 in the first step.
BERT_HOST_DEVICE OptimScalars optim_scalars(const UpdateOptions& options, double lr, double inv_scale, double norm,
                                            int64_t step) {
  OptimScalars s{};
  s.lr = lr * options.lr_scale;
  const double clip = options.clip_per_tensor ? 1.0 : clip_coefficient(options, norm);
  s.multiplier = static_cast<float>(inv_scale * clip);
  s.inv_correction1 = options.bias_correction ? static_cast<float>(1.0 / bias_correction(options.beta1, step)) : 1.0F;
  s.inv_correction2 = options.bias_correction ? static_cast<float>(1.0 / bias_correction(options.beta2, step)) : 1.0F;
  s.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  s.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  s.beta3 = static_cast<float>(options.beta3);
  s.eps = static_cast<float>(options.eps);
  s.weight_decay = static_cast<float>(options.weight_decay);
  s.ema_share = static_cast<float>(ema_share(options.ema_decay, step));
  s.decoupled = options.decoupled;
  return s;
}

/// lr times LAMB's trust ratio, from the squares of the norms of a parameter and of its update. If one norm is 0, the
/// ratio is 1.
BERT_HOST_DEVICE float lamb_rate(double lr, const UpdateOptions& options, double param_squares, double update_squares) {
  if (!options.trust_ratio || param_squares == 0.0 || update_squares == 0.0) return static_cast<float>(lr);
  const double ratio = sqrt(param_squares) / sqrt(update_squares);
  return static_cast<float>(lr * ratio);
}

/// StableAdamW's rate of a tensor: lr / max(1, RMS). ratios: the sum of g^2 / max(v, eps^2) over its elements.
BERT_HOST_DEVICE float stable_rate(double lr, double ratios, int64_t elements) {
  const double mean = ratios / static_cast<double>(elements);
  return static_cast<float>(mean > 1.0 ? lr / sqrt(mean) : lr);
}

}  // namespace bert
