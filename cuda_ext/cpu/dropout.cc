#include "cuda_ext/dispatch/dropout.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {
namespace {

Tensor drop(const Tensor& x, const simd::Mask& mask) {
  Tensor y = at::empty_like(x);
  const simd::Dropout arguments{.type = type_of(x),
                                .columns = x.numel() / x.size(0),
                                .x = x.const_data_ptr(),
                                .y = y.mutable_data_ptr(),
                                .mask = mask,
                                .scratch = nullptr,
                                .stream = streams(y)};
  at::parallel_for(0, x.size(0), grain(arguments.columns * 4), [&](int64_t begin, int64_t end) {
    simd::Dropout mine = arguments;
    mine.scratch = scratch(simd::scratch_columns(arguments.columns));
    simd::kernels().dropout(mine, begin, end);
  });
  return y;
}

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (!has_kernel(x) || p == 0.0 || x.numel() == 0) return composite::dropout(x, p, seed, site, keys);
  const Tensor kept = room_for_mask(p, x.size(0), x.numel() / x.size(0), x);
  return {drop(x, keeping_mask(mask_of(p, seed, site, keys), kept)), kept};
}

Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept) {
  if (!has_kernel(grad) || p == 0.0 || grad.numel() == 0)
    return composite::dropout_backward(grad, p, seed, site, keys, kept);
  return drop(grad, kept_mask(mask_of(p, seed, site, keys), kept));
}

Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p) {
  const Tensor ones = at::ones({keys.size(0), columns}, keys.options().dtype(at::kFloat));
  return dropout_backward(ones, p, seed, site, keys, composite::nothing_kept(keys)).ne(0);
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("dropout", bert::cpu::dropout);
  m.impl("dropout_backward", bert::cpu::dropout_backward);
  m.impl("dropout_mask", bert::cpu::dropout_mask);
}
