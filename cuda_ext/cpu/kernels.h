// What the CPU's kernel files share. cuda_ext/cpu/kernels.cc registers all kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>

#include "cuda_ext/simd/kernels.h"

namespace bert::cpu {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// fp32, bf16 or fp16; the compositions serve the rest.
bool has_kernel(const Tensor& x);
simd::Type type_of(const Tensor& x);
simd::Mask mask_of(double p, int64_t seed, int64_t site, const OptionalTensor& keys);

/// Results from this size on are written past the caches. LayerNorm in fp32 and one read of its result, two cores with
/// 32 MB of cache: 6 MB 1.1 times as fast so, 12 MB 1.2 to 2 times, 50 MB 1.2 times or more; up to 3 MB equal.
inline constexpr size_t kStreamBytes = 4 << 20;
/// Whether `result` is: it is large, and each row (of its last dimension) is aligned.
bool streams(const Tensor& result);

/// Less work than this is not worth a second thread.
inline constexpr int64_t kGrainBytes = 1 << 15;
/// The least rows of that many bytes for a thread.
inline int64_t grain(int64_t row_bytes) { return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(1, row_bytes)); }

/// At least `floats` of the thread's working memory, kept between calls, aligned for the widest vectors.
float* scratch(int64_t floats);

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias);
std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed);

std::tuple<Tensor, Tensor, Tensor> attention(const Tensor& qkv, const Tensor& cu_seqlens, int64_t max_seqlen,
                                             int64_t num_heads, double p, int64_t seed, int64_t site,
                                             const OptionalTensor& keys);
Tensor attention_backward(const Tensor& grad, const Tensor& qkv, const Tensor& out, const Tensor& logsumexp,
                          const Tensor& rng_state, const Tensor& cu_seqlens, int64_t max_seqlen, int64_t num_heads,
                          double p, int64_t seed, int64_t site, const OptionalTensor& keys);

std::tuple<Tensor, Tensor> masked_softmax_dropout(const Tensor& scores, const Tensor& cu_seqlens, double scale,
                                                  double p, int64_t seed, int64_t site, const OptionalTensor& keys);
Tensor masked_softmax_dropout_backward(const Tensor& grad, const Tensor& scores, const Tensor& logsumexp,
                                       const Tensor& cu_seqlens, double scale, double p, int64_t seed, int64_t site,
                                       const OptionalTensor& keys);

std::tuple<Tensor, Tensor> cross_entropy(const Tensor& logits, const Tensor& labels, int64_t num_classes);
Tensor& cross_entropy_backward_(Tensor& logits, const Tensor& grad, const Tensor& labels, const Tensor& logsumexp,
                                int64_t num_classes);

}  // namespace bert::cpu
