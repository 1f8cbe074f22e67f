#include "cuda_ext/dispatch/softmax.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/launch.h"
#include "cuda_ext/kernels/softmax_dropout.h"

namespace bert::cuda {
namespace {

template <class T>
kernels::MaskedSoftmaxInput<T> input(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                     const kernels::DropoutMask& mask) {
  return {.sequences = scores.size(0),
          .heads = scores.size(1),
          .queries = scores.size(2),
          .columns = scores.size(3),
          .cu_seqlens = in<int32_t>(cu_seqlens),
          .scale = static_cast<float>(scale),
          .scores = in<T>(scores),
          .dropout = mask};
}

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const c10::cuda::CUDAGuard guard(scores.device());
  const Tensor y = at::empty_like(scores), logsumexp = floats(scores, scores.sizes().slice(0, 3));
  const bool done = with_type(scores, [&](auto type) {
    using T = typename decltype(type)::type;
    kernels::masked_softmax_forward<T>({.input = input<T>(scores, cu_seqlens, scale, dropout_mask(p, seed, site, keys)),
                                        .y = out<T>(y),
                                        .logsumexp = out<float>(logsumexp)},
                                       stream_of(scores));
  });
  if (!done) return composite::masked_softmax_dropout(scores, cu_seqlens, scale, p, seed, site, keys);
  return {y, logsumexp};
}

Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys) {
  const c10::cuda::CUDAGuard guard(scores.device());
  Tensor dscores = at::empty_like(scores);
  const bool done = same_type(scores, {&grad}) && with_type(scores, [&](auto type) {
                      using T = typename decltype(type)::type;
                      kernels::masked_softmax_backward<T>(
                          {.input = input<T>(scores, cu_seqlens, scale, dropout_mask(p, seed, site, keys)),
                           .dy = in<T>(grad),
                           .logsumexp = in<float>(logsumexp),
                           .dscores = out<T>(dscores)},
                          stream_of(scores));
                    });
  if (done) return dscores;
  return composite::masked_softmax_dropout_backward(grad, scores, logsumexp, cu_seqlens, scale, p, seed, site, keys);
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("masked_softmax_dropout", bert::cuda::masked_softmax_dropout);
  m.impl("masked_softmax_dropout_backward", bert::cuda::masked_softmax_dropout_backward);
}
