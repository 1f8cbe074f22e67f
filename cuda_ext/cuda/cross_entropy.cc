#include "cuda_ext/dispatch/cross_entropy.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/cross_entropy.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

const float* data_of(const OptionalTensor& counted) { return counted ? in<float>(*counted) : nullptr; }

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes,
                                         const OptionalTensor& counted) {
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
                                       .counted = data_of(counted),
                                       .logsumexp = out<float>(logsumexp),
                                       .row_loss = out<float>(row_loss),
                                       .loss = out<float>(loss)},
                                      stream_of(logits));
  });
  if (!done) return composite::cross_entropy(logits, labels, num_classes, counted);
  return {loss, logsumexp};
}

Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes, const OptionalTensor& counted) {
  const c10::cuda::CUDAGuard guard(logits.device());
  const bool done = grad.scalar_type() == at::kFloat && with_type(logits, [&](auto type) {
                      using T = typename decltype(type)::type;
                      kernels::cross_entropy_backward<T>({.rows = labels.size(0),
                                                          .columns = logits.size(1),
                                                          .num_classes = num_classes,
                                                          .logits = out<T>(logits),
                                                          .labels = in<int64_t>(labels),
                                                          .counted = data_of(counted),
                                                          .logsumexp = in<float>(logsumexp),
                                                          .grad = in<float>(grad)},
                                                         stream_of(logits));
                    });
  return done ? logits : composite::cross_entropy_backward_(logits, grad, labels, logsumexp, num_classes, counted);
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("cross_entropy", bert::cuda::cross_entropy);
  m.impl("cross_entropy_backward_", bert::cuda::cross_entropy_backward_);
}
