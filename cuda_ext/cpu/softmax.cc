#include "cuda_ext/dispatch/softmax.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {
namespace {

/// Arguments of forward and backward.
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
  constexpr int64_t kGrain = 1 << 13;  // scores; fewer are not worth a second thread
  at::parallel_for(0, rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, arguments.columns)),
                   [&](int64_t begin, int64_t end) {
                     simd::MaskedSoftmax mine = arguments;
                     mine.scratch = scratch(3 * simd::scratch_columns(arguments.columns));
                     kernel(mine, begin, end);
                   });
}

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

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("masked_softmax_dropout", bert::cpu::masked_softmax_dropout);
  m.impl("masked_softmax_dropout_backward", bert::cpu::masked_softmax_dropout_backward);
}
