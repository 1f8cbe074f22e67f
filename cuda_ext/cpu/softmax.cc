// Masked softmax with dropout, and cross entropy, on the CPU: rows for the threads; the arithmetic is in
// cuda_ext/simd/softmax.inc and cuda_ext/simd/pointwise.inc.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <numeric>

#include "cuda_ext/cpu/kernels.h"
#include "cuda_ext/dispatch/composite.h"

namespace bert::cpu {
namespace {

/// What forward and backward share.
simd::MaskedSoftmax arguments_of(const Tensor& scores, const Tensor& cu_seqlens, double scale, double p, int64_t seed,
                                 int64_t site, const OptionalTensor& keys) {
  return {.type = type_of(scores),
          .heads = scores.size(1),
          .queries = scores.size(2),
          .columns = scores.size(3),
          .cu_seqlens = cu_seqlens.const_data_ptr<int32_t>(),
          .scale = static_cast<float>(scale),
          .scores = scores.const_data_ptr(),
          .grad = nullptr,
          .out = nullptr,
          .logsumexp = nullptr,
          .mask = mask_of(p, seed, site, keys),
          .scratch = nullptr,
          .stream = false};
}

void for_rows(const simd::MaskedSoftmax& arguments, int64_t rows,
              void (*kernel)(const simd::MaskedSoftmax&, int64_t, int64_t)) {
  constexpr int64_t kGrain = 1 << 13;  // scores: less is not worth a second thread
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, arguments.columns)),
                   [&](int64_t begin, int64_t end) {
                     simd::MaskedSoftmax mine = arguments;
                     mine.scratch = scratch(3 * simd::scratch_columns(arguments.columns));
                     kernel(mine, begin, end);
                   });
}

}  // namespace

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (!has_kernel(scores)) {
    return composite::masked_softmax_dropout(scores, cu_seqlens, scale, p, seed, site, keys);
  }
  Tensor y = at::empty_like(scores);
  Tensor logsumexp = at::empty(scores.sizes().slice(0, 3), scores.options().dtype(at::kFloat));
  simd::MaskedSoftmax arguments = arguments_of(scores, cu_seqlens, scale, p, seed, site, keys);
  arguments.out = y.mutable_data_ptr();
  arguments.stream = streams(y);
  arguments.logsumexp = logsumexp.mutable_data_ptr<float>();
  for_rows(arguments, logsumexp.numel(), simd::kernels().masked_softmax);
  return {y, logsumexp};
}

Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys) {
  if (!has_kernel(scores) || grad.scalar_type() != scores.scalar_type()) {
    return composite::masked_softmax_dropout_backward(grad, scores, logsumexp, cu_seqlens, scale, p, seed, site, keys);
  }
  Tensor dscores = at::empty_like(scores);
  simd::MaskedSoftmax arguments = arguments_of(scores, cu_seqlens, scale, p, seed, site, keys);
  arguments.grad = grad.const_data_ptr();
  arguments.out = dscores.mutable_data_ptr();
  arguments.stream = streams(dscores);
  arguments.logsumexp = const_cast<float*>(logsumexp.const_data_ptr<float>());  // read only in backward
  for_rows(arguments, logsumexp.numel(), simd::kernels().masked_softmax_backward);
  return dscores;
}

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  const int64_t rows = labels.size(0);
  if (!has_kernel(logits) || rows == 0) return composite::cross_entropy(logits, labels, num_classes);
  const auto options = logits.options().dtype(at::kFloat);
  Tensor logsumexp = at::empty({rows}, options), loss = at::empty({rows}, options);
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
                                int64_t num_classes) {
  const int64_t rows = labels.size(0);
  if (!has_kernel(logits) || rows == 0) {
    return composite::cross_entropy_backward_(logits, grad, labels, logsumexp, num_classes);
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
  return logits;
}

}  // namespace bert::cpu
