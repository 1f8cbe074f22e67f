#include "cuda_ext/multi_tensor_cpu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace bert::ops::cpu {
namespace {

/// 128 KiB of fp32: the four arrays of a chunk fit in a second-level cache.
constexpr int64_t kChunkElements = 32768;
/// Lamb goes over a batch of tensors twice, with all threads meeting in between. Larger: fewer meetings; smaller: more
/// of the second pass is still in a last-level cache (12 bytes per element).
constexpr int64_t kBatchElements = 4194304;

/// A run of elements of tensor number `tensor`.
struct Chunk {
  size_t tensor;
  int64_t begin, size;
};

void append_chunks(size_t tensor, int64_t numel, std::vector<Chunk>& chunks) {
  for (int64_t begin = 0; begin < numel; begin += kChunkElements) {
    chunks.push_back({tensor, begin, std::min(kChunkElements, numel - begin)});
  }
}

std::vector<Chunk> chunks_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Chunk> chunks;
  for (size_t i = 0; i < tensors.size(); ++i) append_chunks(i, tensors[i].numel(), chunks);
  return chunks;
}

template <class Function>
void for_each_chunk(const std::vector<Chunk>& chunks, const Function& function) {
  at::parallel_for(0, static_cast<int64_t>(chunks.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) function(static_cast<size_t>(c), chunks[static_cast<size_t>(c)]);
  });
}

OptimChunk pointers(const OptimizerTensors& tensors, const Chunk& chunk) {
  const size_t i = chunk.tensor;
  OptimChunk result{.param = tensors.params[i].data_ptr<float>() + chunk.begin,
                    .exp_avg = tensors.exp_avg[i].data_ptr<float>() + chunk.begin,
                    .exp_avg_sq = tensors.exp_avg_sq[i].data_ptr<float>() + chunk.begin,
                    .grad = tensors.grads[i].const_data_ptr<float>() + chunk.begin,
                    .copy = nullptr,
                    .copy_type = CopyType::kNone,
                    .n = chunk.size};
  if (const at::Tensor& copy = tensors.copies[i]; copy.defined()) {
    result.copy = static_cast<uint16_t*>(copy.data_ptr()) + chunk.begin;
    result.copy_type = copy.scalar_type() == at::kHalf ? CopyType::kHalf : CopyType::kBFloat16;
  }
  return result;
}

float value_of(const at::Tensor& scalar) { return static_cast<float>(scalar.item<double>()); }

OptimScalars host_scalars(const StepScalars& scalars, const LambParameters& p) {
  return {.lr = value_of(scalars.lr),
          .multiplier = value_of(scalars.multiplier),
          .inv_correction1 = static_cast<float>(1.0 / scalars.correction1.item<double>()),
          .inv_correction2 = static_cast<float>(1.0 / scalars.correction2.item<double>()),
          .one_minus_beta1 = static_cast<float>(1.0 - p.beta1),
          .one_minus_beta2 = static_cast<float>(1.0 - p.beta2),
          .beta3 = static_cast<float>(p.beta3),
          .eps = static_cast<float>(p.eps),
          .weight_decay = static_cast<float>(p.weight_decay),
          .decoupled = p.decoupled};
}

}  // namespace

const OptimKernels& optim_kernels(CpuCapability capability) {
  if (capability == CpuCapability::kAvx512) return simd_avx512::kOptimKernels;
  return capability == CpuCapability::kAvx2 ? simd_avx2::kOptimKernels : simd_plain::kOptimKernels;
}

bool takes(const std::vector<at::Tensor>& tensors) {
  return std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
           tensor.is_contiguous();
  });
}

bool takes(const OptimizerTensors& tensors) {
  return takes(tensors.params) && takes(tensors.grads) && takes(tensors.exp_avg) && takes(tensors.exp_avg_sq) &&
         std::all_of(tensors.copies.begin(), tensors.copies.end(),
                     [](const at::Tensor& copy) { return !copy.defined() || copy.is_contiguous(); });
}

double l2_norm(const std::vector<at::Tensor>& tensors, const OptimKernels& kernels) {
  const std::vector<Chunk> chunks = chunks_of(tensors);
  std::vector<double> sums(chunks.size());
  for_each_chunk(chunks, [&](size_t c, const Chunk& chunk) {
    sums[c] = kernels.sum_of_squares(tensors[chunk.tensor].const_data_ptr<float>() + chunk.begin, chunk.size);
  });
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return std::sqrt(total);
}

bool scale_(const std::vector<at::Tensor>& tensors, float factor, const OptimKernels& kernels) {
  const std::vector<Chunk> chunks = chunks_of(tensors);
  std::vector<uint8_t> finite(chunks.size());
  for_each_chunk(chunks, [&](size_t c, const Chunk& chunk) {
    finite[c] = kernels.scale(tensors[chunk.tensor].data_ptr<float>() + chunk.begin, chunk.size, factor) ? 1 : 0;
  });
  return std::all_of(finite.begin(), finite.end(), [](uint8_t flag) { return flag != 0; });
}

void lamb(const OptimizerTensors& tensors, const StepScalars& scalars, const LambParameters& parameters,
          const OptimKernels& kernels) {
  if (scalars.skip.item<bool>()) return;
  const OptimScalars values = host_scalars(scalars, parameters);
  const double lr = scalars.lr.item<double>();
  const size_t count = tensors.params.size();
  std::vector<LambNorms> norms;
  for (size_t first = 0, last = 0; first < count; first = last) {
    std::vector<Chunk> chunks;
    for (int64_t elements = 0; last < count && elements < kBatchElements; ++last) {
      append_chunks(last, tensors.params[last].numel(), chunks);
      elements += tensors.params[last].numel();
    }
    norms.assign(chunks.size(), {0.0, 0.0});
    for_each_chunk(chunks, [&](size_t c, const Chunk& chunk) {
      norms[c] = kernels.lamb_moments(pointers(tensors, chunk), values);
    });
    std::vector<LambNorms> sums(last - first, {0.0, 0.0});
    for (size_t c = 0; c < chunks.size(); ++c) {
      sums[chunks[c].tensor - first].param += norms[c].param;
      sums[chunks[c].tensor - first].update += norms[c].update;
    }
    for_each_chunk(chunks, [&](size_t, const Chunk& chunk) {
      const LambNorms& sum = sums[chunk.tensor - first];
      const bool scaled = parameters.trust_ratio && sum.param != 0.0 && sum.update != 0.0;
      const double ratio = scaled ? std::sqrt(sum.param) / std::sqrt(sum.update) : 1.0;
      kernels.lamb_apply(pointers(tensors, chunk), values, static_cast<float>(lr * ratio));
    });
  }
}

void adamw(const OptimizerTensors& tensors, const StepScalars& scalars, const AdamwParameters& parameters,
           const OptimKernels& kernels) {
  if (scalars.skip.item<bool>()) return;
  const OptimScalars values = host_scalars(scalars, {.beta1 = parameters.beta1,
                                                     .beta2 = parameters.beta2,
                                                     .beta3 = 1.0 - parameters.beta1,
                                                     .eps = parameters.eps,
                                                     .weight_decay = parameters.weight_decay,
                                                     .decoupled = true,
                                                     .trust_ratio = false});
  for_each_chunk(chunks_of(tensors.params),
                 [&](size_t, const Chunk& chunk) { kernels.adamw(pointers(tensors, chunk), values); });
}

}  // namespace bert::ops::cpu
