// Attention on the CPU: shares of work for the threads. cuda_ext/simd/attention.inc has the arithmetic.
#include "cuda_ext/dispatch/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "cuda_ext/cpu/tensors.h"

namespace bert::cpu {
namespace {

/// Runs `kernel` on every head of every sequence. Threads get shares of equal work (length squared), head by head.
void for_heads(const Tensor& cu_seqlens, int64_t num_heads, int64_t head_size, const simd::Attention& first,
               const Tensor& qkv, void (*kernel)(const simd::Attention&)) {
  const int32_t* cu = cu_seqlens.const_data_ptr<int32_t>();
  const int64_t sequences = cu_seqlens.size(0) - 1, tokens = qkv.size(0), hidden = num_heads * head_size;
  std::vector<int64_t> work = {0};  // before each sequence, for one head
  int64_t longest = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t length = cu[b + 1] - cu[b];
    longest = std::max(longest, length);
    work.push_back(work.back() + length * (length + 64));  // the products, and a constant cost of each row
  }
  const auto element = static_cast<int64_t>(qkv.element_size());
  const auto at_element = [element](const void* p, int64_t index) {
    return p == nullptr ? nullptr : const_cast<std::byte*>(static_cast<const std::byte*>(p) + index * element);
  };
  at::parallel_for(0, num_heads * work.back(), 4096, [&](int64_t begin, int64_t end) {
    float* memory = scratch(simd::attention_scratch(longest, head_size));
    for (int64_t head = begin / work.back(); head < num_heads && head * work.back() < end; ++head) {
      for (int64_t b = 0; b < sequences; ++b) {
        const int64_t place = head * work.back() + work[static_cast<size_t>(b)];
        if (place < begin || place >= end || cu[b] == cu[b + 1]) continue;
        simd::Attention mine = first;
        mine.length = cu[b + 1] - cu[b];
        mine.qkv = at_element(first.qkv, cu[b] * 3 * hidden + head * head_size);
        mine.out = at_element(first.out, cu[b] * hidden + head * head_size);
        mine.logsumexp = first.logsumexp + head * tokens + cu[b];
        mine.grad = at_element(first.grad, cu[b] * hidden + head * head_size);
        mine.dqkv = at_element(first.dqkv, cu[b] * 3 * hidden + head * head_size);
        mine.mask.site = first.mask.site + static_cast<uint32_t>(head);
        mine.mask.keys = first.mask.keys == nullptr ? nullptr : first.mask.keys + cu[b];
        mine.scratch = memory;
        kernel(mine);
      }
    }
  });
}

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys) {
  if (!has_kernel(qkv)) return composite::attention(qkv, cu_seqlens, max_seqlen, num_heads, p, seed, site, keys);
  const int64_t tokens = qkv.size(0), hidden = qkv.size(1) / 3, head_size = hidden / num_heads;
  Tensor out = at::empty({tokens, hidden}, qkv.options());
  Tensor logsumexp = at::empty({num_heads, tokens}, qkv.options().dtype(at::kFloat));
  simd::Attention arguments{};
  arguments.type = type_of(qkv);
  arguments.head_size = head_size;
  arguments.hidden = hidden;
  arguments.qkv = qkv.const_data_ptr();
  arguments.out = out.mutable_data_ptr();
  arguments.logsumexp = logsumexp.mutable_data_ptr<float>();
  arguments.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
  arguments.mask = mask_of(p, seed, site, keys);
  for_heads(cu_seqlens, num_heads, head_size, arguments, qkv, simd::kernels().attention);
  return {out, logsumexp, at::empty({0}, qkv.options().dtype(at::kLong))};
}

Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (!has_kernel(qkv) || grad.scalar_type() != qkv.scalar_type()) {
    return composite::attention_backward(grad, qkv, out, logsumexp, rng_state, cu_seqlens, max_seqlen, num_heads, p,
                                         seed, site, keys);
  }
  const int64_t hidden = qkv.size(1) / 3, head_size = hidden / num_heads;
  Tensor dqkv = at::empty_like(qkv);
  simd::Attention arguments{};
  arguments.type = type_of(qkv);
  arguments.head_size = head_size;
  arguments.hidden = hidden;
  arguments.qkv = qkv.const_data_ptr();
  arguments.out = const_cast<void*>(out.const_data_ptr());  // read only in backward
  arguments.logsumexp = const_cast<float*>(logsumexp.const_data_ptr<float>());
  arguments.grad = grad.const_data_ptr();
  arguments.dqkv = dqkv.mutable_data_ptr();
  arguments.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_size)));
  arguments.mask = mask_of(p, seed, site, keys);
  for_heads(cu_seqlens, num_heads, head_size, arguments, qkv, simd::kernels().attention_backward);
  return dqkv;
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("attention", bert::cpu::attention);
  m.impl("attention_backward", bert::cpu::attention_backward);
}
