#include "cuda_ext/dispatch/cross_entropy.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <numeric>

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {
namespace {

/// The rows that take part.
int64_t number_of(const OptionalTensor& counted, const Tensor& labels) {
  return counted ? static_cast<int64_t>(counted->item<float>()) : labels.size(0);
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& counted) {
  const int64_t rows = number_of(counted, labels);
  if (!has_kernel(logits) || rows == 0) return composite::cross_entropy(logits, labels, num_classes, counted);
  const auto options = logits.options().dtype(at::kFloat);
  Tensor logsumexp = at::empty({labels.size(0)}, options), loss = at::empty({rows}, options);
  const simd::CrossEntropy arguments{.type = type_of(logits),
                                     .stride = logits.size(1),
                                     .num_classes = num_classes,
                                     .logits = const_cast<void*>(logits.const_data_ptr()),  // read only in forward
                                     .labels = labels.const_data_ptr<int64_t>(),
                                     .logsumexp = logsumexp.mutable_data_ptr<float>(),
                                     .loss = loss.mutable_data_ptr<float>(),
                                     .scale = 0.0F};
  at::parallel_for(0, rows, grain(num_classes * 4),
                   [&](int64_t begin, int64_t end) { simd::kernels().cross_entropy(arguments, begin, end); });
  const float* row = loss.const_data_ptr<float>();
  const double mean = std::accumulate(row, row + rows, 0.0) / static_cast<double>(rows);
  return {at::scalar_tensor(mean, options), logsumexp};
}

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes, const OptionalTensor& counted) {
  const int64_t rows = number_of(counted, labels);
  if (!has_kernel(logits) || rows == 0) {
    return composite::cross_entropy_backward_(logits, grad, labels, logsumexp, num_classes, counted);
  }
  const simd::CrossEntropy arguments{
      .type = type_of(logits),
      .stride = logits.size(1),
      .num_classes = num_classes,
      .logits = logits.mutable_data_ptr(),
      .labels = labels.const_data_ptr<int64_t>(),
      .logsumexp = const_cast<float*>(logsumexp.const_data_ptr<float>()),  // read only here
      .loss = nullptr,
      .scale = static_cast<float>(grad.item<double>() / static_cast<double>(rows))};
  at::parallel_for(0, rows, grain(num_classes * 4),
                   [&](int64_t begin, int64_t end) { simd::kernels().cross_entropy_backward(arguments, begin, end); });
  logits.narrow(0, rows, logits.size(0) - rows).zero_();
  return logits;
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("cross_entropy", bert::cpu::cross_entropy);
  m.impl("cross_entropy_backward_", bert::cpu::cross_entropy_backward_);
}
