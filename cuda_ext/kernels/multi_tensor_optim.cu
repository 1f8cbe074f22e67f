// A step of LAMB, StableAdamW or AdamW over all parameters of all groups, gradient norm, clipping, step counter and low-precision
// copies included.
//
//   norm_kernel          the norm of all gradients; its last block decides whether to skip, counts the step and works
//                        out every group's numbers (rate, clipping, corrections), so that the host knows none of them
//   lamb_moments_kernel  m and v, and the squares of p and of the update u, by chunk; the last block of a tensor turns
//                        their sums into lr |p| / |u|. Of StableAdamW: the squares of g / max(sqrt(v), eps), and
//                        lr / max(1, RMS)
//   lamb_apply_kernel    p, its moving average and its copy; u once more from m and v: as many bytes as to write u
//                        and read it, and no memory for it
//   adamw_kernel         AdamW has no norms of tensors: moments, p, its moving average and its copy at once
//
// A block is a chunk of 16,384 elements. Bytes per parameter with a 2-byte copy: LAMB 42 (moments 24: read g p m v,
// write m v; apply 18: read p m v, write p and copy), AdamW 30 (read g p m v, write p m v and copy); the norm 4 more in
// both, a moving average 8 (read and written).
//
// Each kernel goes through the chunks against the direction of the kernel before, so that it begins with data that is
// still in the cache. Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/multi_tensor.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kBlocks = 4;       // on an SM: 64 registers for a thread, and 64 KB of loads in flight
constexpr int kApplyBlocks = 5;  // the 40 registers of 6 make lamb_apply_kernel spill

__device__ __forceinline__ double value_of(const ScalarInput& scalar, double otherwise) {
  if (scalar.data == nullptr) return otherwise;
  return scalar.is_double ? *static_cast<const double*>(scalar.data) : *static_cast<const float*>(scalar.data);
}

/// The numbers that depend on the norm of the gradients.
struct BeginStep {
  int64_t groups;
  const UpdateOptions* options;
  OptimScalars* scalars;
  StepPointers step;

  __device__ __forceinline__ void operator()(double sum, const NormWorkspace& /*work*/) const {
    const double inv_scale = value_of(step.inv_scale, 1.0), norm = sqrt(sum) * inv_scale;
    const auto grad_norm = static_cast<float>(norm);
    const bool skip = !is_finite(grad_norm) || value_of(step.found_inf, 0.0) != 0.0;
    const int64_t number = *step.step + 1;
    sync_block();  // all have read the counter
    for (int64_t group = threadIdx.x; group < groups; group += kOptimThreads) {
      const UpdateOptions& option = options[group];
      scalars[group] = optim_scalars(option, value_of(step.lr, option.lr), inv_scale, norm, number);
    }
    if (threadIdx.x != 0) return;
    *step.grad_norm = grad_norm;
    *step.skipped = skip ? 1.0F : 0.0F;
    if (!skip) *step.step = number;
  }
};

/// Note [Moments in fp32] in multi_tensor.h.
__device__ __forceinline__ void update_moments(float g, const OptimScalars& s, float& m, float& v) {
  m += s.beta3 * g - s.one_minus_beta1 * m;
  v += s.one_minus_beta2 * (g * g - v);
}

__device__ __forceinline__ float adam_direction(float m, float v, const OptimScalars& s) {
  return m * fast_reciprocal(sqrtf(v * s.inv_correction2) + s.eps);
}

__device__ __forceinline__ OptimScalars scalars_of(const OptimTable& table, const OptimEntry& entry, int32_t tensor) {
  OptimScalars s = table.scalars[entry.group];
  s.multiplier = tensor_multiplier(table.options[entry.group], s.multiplier, table.norms.tensor_sums[tensor]);
  return s;
}

/// ema = (1 - share) ema + share param, from the nearer end, as cuda_ext/simd/optim.inc does.
template <int N>
__device__ __forceinline__ void update_average(const OptimEntry& entry, int64_t element, const float (&param)[N],
                                               float share) {
  if (entry.ema == nullptr) return;
  float ema[N];
  load_floats(entry.ema + element, ema);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float difference = param[i] - ema[i];
    ema[i] = share < 0.5F ? ema[i] + share * difference : param[i] - (1.0F - share) * difference;
  }
  store_floats(entry.ema + element, ema);
}

template <int N>
__device__ __forceinline__ void store_copy(const OptimEntry& entry, int64_t element, const float (&param)[N]) {
  const auto write = [&](auto type) {
    using T = typename decltype(type)::type;
    store_floats(static_cast<T*>(entry.copy) + element, param);
  };
  if (entry.copy_type == CopyType::kHalf) write(Element<c10::Half>());
  if (entry.copy_type == CopyType::kBFloat16) write(Element<c10::BFloat16>());
}

/// The block's chunk, from the last to the first: the last gradients of norm_kernel are still in the cache. (Sums stand
/// at their chunk's place, so the order is not in the result.)
__device__ __forceinline__ unsigned last_first() { return gridDim.x - 1 - blockIdx.x; }

template <UpdateRule kRule>
__global__ void __launch_bounds__(kOptimThreads, kBlocks) lamb_moments_kernel(OptimTable table, const float* skipped) {
  BERT_SHARED(double, scratch, 4 * kOptimWarps);
  BERT_SHARED(int, flag, 1);
  if (*skipped != 0.0F) return;  // the whole grid
  const auto place = static_cast<int64_t>(last_first());
  const ChunkEntry chunk = table.grads.chunk[place];
  const OptimEntry entry = table.entries[chunk.tensor];
  const OptimScalars s = scalars_of(table, entry, chunk.tensor);
  const float gradient_decay = s.decoupled ? 0.0F : s.weight_decay, update_decay = s.decoupled ? s.weight_decay : 0.0F;
  double sums[2] = {};
  for_each_element(chunk, entry.aligned, [&](auto width, int64_t element) {
    constexpr int kWidth = decltype(width)::value;
    float p[kWidth], g[kWidth], m[kWidth], v[kWidth];
    load_floats(entry.param + element, p);
    load_floats(entry.grad + element, g);
    load_floats(entry.exp_avg + element, m);
    load_floats(entry.exp_avg_sq + element, v);
    float param_squares = 0.0F, update_squares = 0.0F;  // of four elements; fp64 from there on
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float gradient = g[i] * s.multiplier + gradient_decay * p[i];
      update_moments(gradient, s, m[i], v[i]);
      if constexpr (kRule == UpdateRule::kStableAdamw) {
        const float root = sqrtf(v[i] * s.inv_correction2);
        const float ratio = gradient * fast_reciprocal(root > s.eps ? root : s.eps);
        update_squares += ratio * ratio;
      } else {
        const float update = s.inv_correction1 * adam_direction(m[i], v[i], s) + update_decay * p[i];
        param_squares += p[i] * p[i];
        update_squares += update * update;
      }
    }
    store_floats(entry.exp_avg + element, m);
    store_floats(entry.exp_avg_sq + element, v);
    sums[0] += param_squares;
    sums[1] += update_squares;
  });
  block_sum<kOptimWarps>(sums, scratch);
  if (threadIdx.x == 0) {
    table.update_sums[2 * place] = sums[0];
    table.update_sums[2 * place + 1] = sums[1];
  }
  if (!comes_last(table.norms.tickets + chunk.tensor, entry.chunks, flag)) return;  // the whole block
  sum_chunks(table.update_sums + 2 * entry.first_chunk, entry.chunks, sums, scratch + 2 * kOptimWarps);
  if (threadIdx.x != 0) return;
  if constexpr (kRule == UpdateRule::kStableAdamw) {
    const ChunkEntry last = table.grads.chunk[entry.first_chunk + entry.chunks - 1];
    table.rates[chunk.tensor] = stable_rate(s.lr, sums[1], last.begin + last.size);
  } else {
    table.rates[chunk.tensor] = lamb_rate(s.lr, table.options[entry.group], sums[0], sums[1]);
  }
}

__global__ void __launch_bounds__(kOptimThreads, kApplyBlocks)
    lamb_apply_kernel(OptimTable table, const float* skipped) {
  if (*skipped != 0.0F) return;
  const ChunkEntry chunk = table.grads.chunk[blockIdx.x];  // the first are still in the cache
  const OptimEntry entry = table.entries[chunk.tensor];
  const OptimScalars s = table.scalars[entry.group];
  const float rate = table.rates[chunk.tensor], step_size = rate * s.inv_correction1;
  const float decay = s.decoupled ? rate * s.weight_decay : 0.0F;
  for_each_element(chunk, entry.aligned, [&](auto width, int64_t element) {
    constexpr int kWidth = decltype(width)::value;
    float p[kWidth], m[kWidth], v[kWidth];
    load_floats(entry.param + element, p);
    load_floats(entry.exp_avg + element, m);
    load_floats(entry.exp_avg_sq + element, v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      p[i] -= step_size * adam_direction(m[i], v[i], s) + decay * p[i];
    }
    store_floats(entry.param + element, p);
    update_average(entry, element, p, s.ema_share);
    store_copy(entry, element, p);
  });
}

__global__ void __launch_bounds__(kOptimThreads, kBlocks) adamw_kernel(OptimTable table, const float* skipped) {
  if (*skipped != 0.0F) return;
  const ChunkEntry chunk = table.grads.chunk[last_first()];
  const OptimEntry entry = table.entries[chunk.tensor];
  const OptimScalars s = scalars_of(table, entry, chunk.tensor);
  const auto step_size = static_cast<float>(s.lr * s.inv_correction1);
  const float decay = s.decoupled ? static_cast<float>(s.lr * s.weight_decay) : 0.0F;
  const float gradient_decay = s.decoupled ? 0.0F : s.weight_decay;
  for_each_element(chunk, entry.aligned, [&](auto width, int64_t element) {
    constexpr int kWidth = decltype(width)::value;
    float p[kWidth], g[kWidth], m[kWidth], v[kWidth];
    load_floats(entry.param + element, p);
    load_floats(entry.grad + element, g);
    load_floats(entry.exp_avg + element, m);
    load_floats(entry.exp_avg_sq + element, v);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      update_moments(g[i] * s.multiplier + gradient_decay * p[i], s, m[i], v[i]);
      p[i] -= step_size * adam_direction(m[i], v[i], s) + decay * p[i];
    }
    store_floats(entry.exp_avg + element, m);
    store_floats(entry.exp_avg_sq + element, v);
    store_floats(entry.param + element, p);
    update_average(entry, element, p, s.ema_share);
    store_copy(entry, element, p);
  });
}

}  // namespace

void optimizer_step(const OptimTable& table, const StepPointers& pointers, Stream stream) {
  if (table.grads.tensors == 0) return;
  launch_norm(table.grads, table.norms,
              BeginStep{.groups = table.groups, .options = table.options, .scalars = table.scalars, .step = pointers},
              stream);
  const Grid grid{.x = static_cast<unsigned>(table.grads.chunks)};
  const float* skipped = pointers.skipped;
  if (table.rule == UpdateRule::kAdamw) {
    launch(adamw_kernel, grid, kOptimThreads, 0, stream, table, skipped);
    return;
  }
  const auto moments = table.rule == UpdateRule::kLamb ? lamb_moments_kernel<UpdateRule::kLamb>
                                                       : lamb_moments_kernel<UpdateRule::kStableAdamw>;
  launch(moments, grid, kOptimThreads, 0, stream, table, skipped);
  launch(lamb_apply_kernel, grid, kOptimThreads, 0, stream, table, skipped);
}

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
