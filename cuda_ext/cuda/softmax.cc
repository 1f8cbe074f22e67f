// CUDA's registrations of the loss, softmax and dropout; cuda_ext/cuda/ops.cc has the others and says how.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const int64_t rows = labels.size(0);
  const Tensor loss = floats(logits, {}), logsumexp = floats(logits, {rows}), row_loss = floats(logits, {rows});
  const bool done = with_type(logits, [&](auto type) {
    using T = typename decltype(type)::type;
    kernels::cross_entropy_forward<T>({.rows = rows,
                                       .columns = logits.size(1),
                                       .num_classes = num_classes,
                                       .logits = in<T>(logits),
                                       .labels = in<int64_t>(labels),
                                       .logsumexp = out<float>(logsumexp),
                                       .row_loss = out<float>(row_loss),
                                       .loss = out<float>(loss)},
                                      stream_of(logits));
  });
  if (!done) return composite::cross_entropy(logits, labels, num_classes);
  return {loss, logsumexp};
}

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const bool done = grad.scalar_type() == at::kFloat && with_type(logits, [&](auto type) {
                      using T = typename decltype(type)::type;
                      kernels::cross_entropy_backward<T>({.rows = labels.size(0),
                                                          .columns = logits.size(1),
                                                          .num_classes = num_classes,
                                                          .logits = out<T>(logits),
                                                          .labels = in<int64_t>(labels),
                                                          .logsumexp = in<float>(logsumexp),
                                                          .grad = in<float>(grad)},
                                                         stream_of(logits));
                    });
  return done ? logits : composite::cross_entropy_backward_(logits, grad, labels, logsumexp, num_classes);
}

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

Tensor dropout_backward(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept) {
  if (p == 0.0 || x.numel() == 0) return composite::dropout_backward(x, p, seed, site, keys, kept);
  const c10::cuda::CUDAGuard guard(x.device());
  Tensor y = at::empty_like(x);
  const bool done = with_type(x, [&](auto type) {
    using T = typename decltype(type)::type;
    kernels::dropout_forward<T>({.rows = x.size(0),
                                 .columns = x.numel() / x.size(0),
                                 .x = in<T>(x),
                                 .y = out<T>(y),
                                 .dropout = dropout_mask(p, seed, site, keys)},
                                stream_of(x));
  });
  return done ? y : composite::dropout_backward(x, p, seed, site, keys, kept);
}

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  const Tensor kept = composite::nothing_kept(x);
  return {dropout_backward(x, p, seed, site, keys, kept), kept};
}

Tensor mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p) {
  const c10::cuda::CUDAGuard guard(keys.device());
  const Tensor kept = at::empty({keys.size(0), columns}, keys.options().dtype(at::kBool));
  kernels::DropoutMask drawn = dropout_mask(p, seed, site, keys);
  drawn.keys = in<int64_t>(keys);  // also for p = 0, which keeps all
  kernels::dropout_kept({.rows = keys.size(0), .columns = columns, .kept = out<bool>(kept), .dropout = drawn},
                        stream_of(keys));
  return kept;
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("cross_entropy", bert::cuda::cross_entropy);
  m.impl("cross_entropy_backward_", bert::cuda::cross_entropy_backward_);
  m.impl("masked_softmax_dropout", bert::cuda::masked_softmax_dropout);
  m.impl("masked_softmax_dropout_backward", bert::cuda::masked_softmax_dropout_backward);
  m.impl("dropout", bert::cuda::dropout);
  m.impl("dropout_backward", bert::cuda::dropout_backward);
  m.impl("dropout_mask", bert::cuda::mask);
}
