// Attention on CUDA through LibTorch's own variable-length kernels. The functions need no CUDA at compile time: they
// only call ATen, and a test runs them on the CPU with stand-ins for LibTorch's kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <tuple>

namespace bert::cuda {

enum class AttentionBackend {
  kCudnn,      // at::_cudnn_attention_forward, _backward
  kFlash,      // at::_flash_attention_forward, _backward
  kEfficient,  // at::_efficient_attention_forward, _backward
  kComposite,  // bert::composite, which builds [B, A, S, S]
};

/// What is to be attended to. max_seqlen is at least the longest of the sequences.
struct AttentionProblem {
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t tokens = 0, sequences = 0, max_seqlen = 0, head_size = 0;
  double p = 0.0;  // of dropout
};

/// And on what.
struct AttentionPlatform {
  int compute_capability = 0;  // 90 for 9.0
  int64_t cudnn_version = 0;   // 91900 for 9.19.0; 0: none
  bool deterministic = false;  // LibTorch's deterministic algorithms are on
};

/// The one that the device's tensors are on, as it is set now.
AttentionPlatform attention_platform(c10::Device device);

/// Which kernels serve, and the head size that they are given: what is missing to it is padded with zeros.
struct AttentionChoice {
  AttentionBackend backend;
  int64_t head_size;
  bool operator==(const AttentionChoice&) const = default;
};

/// Whether cuDNN's kernels drop with just this probability.
bool cudnn_drops(double p);

/// Depends on nothing but its arguments. See Note [Attention backends].
AttentionChoice choose_attention(const AttentionProblem& problem, const AttentionPlatform& platform);

/// The operators of ops.cc for CUDA tensors. `rng_state` is what the backend's backward needs to drop again: flash's
/// uint64 [2] on the device, the others' {seed, offset} int64 [2], else empty. Backward takes the kernels that forward
/// took, also where deterministic algorithms have been switched on or off in between. Throws c10::Error when logsumexp
/// is not from them.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention(const AttentionPlatform& platform, const at::Tensor& qkv,
                                                         const at::Tensor& cu_seqlens, int64_t max_seqlen,
                                                         int64_t num_heads, double p, int64_t seed, int64_t site,
                                                         const std::optional<at::Tensor>& keys);
at::Tensor attention_backward(const AttentionPlatform& platform, const at::Tensor& grad, const at::Tensor& qkv,
                              const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& rng_state,
                              const at::Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads, double p,
                              int64_t seed, int64_t site, const std::optional<at::Tensor>& keys);

}  // namespace bert::cuda
