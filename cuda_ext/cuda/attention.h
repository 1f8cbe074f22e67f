// Attention on CUDA through the variable-length kernels of LibTorch. The functions need no CUDA at compile time: they
// only call ATen, and a test runs them on the CPU with stand-ins for these kernels.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
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

/// The sizes of a call that decide the backend. max_seqlen is at least the length of the longest sequence.
struct AttentionProblem {
  c10::ScalarType dtype = c10::ScalarType::Float;
  int64_t tokens = 0, sequences = 0, max_seqlen = 0, head_size = 0;
  double p = 0.0;  // of dropout
};

/// The device properties that decide the backend.
struct AttentionPlatform {
  int compute_capability = 0;  // 90 for 9.0
  int64_t cudnn_version = 0;   // 91900 for 9.19.0; 0: none
  bool deterministic = false;  // LibTorch's deterministic algorithms are on
};

/// The properties of a device, with the current settings of LibTorch.
AttentionPlatform attention_platform(c10::Device device);

/// The backend, and the head size that its kernels get. Smaller heads are padded with zeros.
struct AttentionChoice {
  AttentionBackend backend;
  int64_t head_size;
  bool operator==(const AttentionChoice&) const = default;
};

/// True if cuDNN's kernels can drop with exactly this probability: a multiple of 1/16.
bool cudnn_drops(double p);

/// Dropout that a backend's kernels compute rightly.
enum class AttentionDropout : uint8_t { kNone, kSixteenths, kAny };

/// A row of the table of backends: the calls that its kernels take.
struct AttentionRow {
  AttentionBackend backend;
  bool low_precision, fp32;  // fp16 and bf16; fp32
  bool unequal_lengths;      // false: several sequences of one length, a multiple of 64
  AttentionDropout dropout;
  int64_t max_head_size;
  bool preferred_only;  // on the devices where LibTorch itself takes these kernels, unless algorithms are deterministic
  const char* reason;   // measured or argued
};
/// Note [Attention backends]. The first row that takes a call gets it; kComposite takes what no row does.
inline constexpr std::array<AttentionRow, 3> kAttentionRows = {{
    {AttentionBackend::kCudnn, true, false, false, AttentionDropout::kSixteenths, 128, true,
     "measured: attention in README.md, which has equal lengths and no dropout"},
    {AttentionBackend::kFlash, true, false, true, AttentionDropout::kAny, 192, false,
     "measured: attention_dropout and attention_unequal_lengths in README.md"},
    {AttentionBackend::kEfficient, true, true, true, AttentionDropout::kNone, INT64_MAX, false,
     "argued: flash has no fp32 and no larger heads, and a composition has tensors of all pairs of tokens"},
}};

/// Depends on its arguments alone.
AttentionChoice choose_attention(const AttentionProblem& problem, const AttentionPlatform& platform);

/// The operators attention and attention_backward for CUDA tensors. `rng_state` is the state with which backward drops
/// again: uint64 [2] on the device for flash, {seed, offset} int64 [2] for the others, else empty. Backward runs the
/// kernels of its forward, even if deterministic algorithms were switched on or off in between. Throws c10::Error if
/// logsumexp is not a result of these kernels.
std::tuple<at::Tensor, at::Tensor, at::Tensor> attention(const AttentionPlatform& platform, const at::Tensor& qkv,
                                                         const at::Tensor& cu_seqlens, int64_t max_seqlen,
                                                         int64_t num_heads, double p, int64_t seed, int64_t site,
                                                         const std::optional<at::Tensor>& keys);
at::Tensor attention_backward(const AttentionPlatform& platform, const at::Tensor& grad, const at::Tensor& qkv,
                              const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& rng_state,
                              const at::Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads, double p,
                              int64_t seed, int64_t site, const std::optional<at::Tensor>& keys);

}  // namespace bert::cuda
