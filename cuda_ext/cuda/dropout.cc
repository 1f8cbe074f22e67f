#include "cuda_ext/dispatch/dropout.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/dropout.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

Tensor dropout_backward(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept) {
  const c10::cuda::CUDAGuard guard(x.device());
  if (p == 0.0 || x.numel() == 0) return composite::dropout_backward(x, p, seed, site, keys, kept);
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
  const c10::cuda::CUDAGuard guard(x.device());
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
  m.impl("dropout", bert::cuda::dropout);
  m.impl("dropout_backward", bert::cuda::dropout_backward);
  m.impl("dropout_mask", bert::cuda::mask);
}
