// Attention on CUDA through LibTorch's own variable-length kernels. The functions need no CUDA at compile time: they
// only call ATen, and a test runs them on the CPU with stand-ins for LibTorch's kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace bert::cuda {

enum class AttentionBackend {
  kFlash,      // at::_flash_attention_forward, _backward
  kEfficient,  // at::_efficient_attention_forward, _backward
  kComposite,  // bert::composite, which builds [B, A, S, S]
};

/// Which kernels serve, and the head size that they are given: what is missing to it is padded with zeros.
struct AttentionChoice {
  AttentionBackend backend;
  int64_t head_size;
  bool operator==(const AttentionChoice&) const = default;
};

/// Depends on nothing but its arguments: backward chooses as forward did. See Note [Attention backends].
AttentionChoice choose_attention(c10::ScalarType dtype, int64_t head_size, int64_t sequences);

/// The operators of ops.cc for CUDA tensors. `rng_state` is what the backend's backward needs to drop again: flash's
/// uint64 [2] on the device, the memory-efficient kernels' {seed, offset} int64 [2], else empty.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention(const at::Tensor& qkv, const at::Tensor& cu_seqlens,
                                                         int64_t max_seqlen, int64_t num_heads, double p, int64_t seed,
                                                         int64_t site, const std::optional<at::Tensor>& keys);
at::Tensor attention_backward(const at::Tensor& grad, const at::Tensor& qkv, const at::Tensor& out,
                              const at::Tensor& logsumexp, const at::Tensor& rng_state, const at::Tensor& cu_seqlens,
                              int64_t max_seqlen, int64_t num_heads, double p, int64_t seed, int64_t site,
                              const std::optional<at::Tensor>& keys);

}  // namespace bert::cuda
