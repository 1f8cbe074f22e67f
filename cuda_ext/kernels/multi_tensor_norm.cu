// The l2 norm of a list of tensors, of each and of all, and unscaling with the search for inf and NaN. One launch each;
// a block is a chunk of 16,384 elements. The blocks of the norm hand on their sums through tickets (comes_last), one
// per tensor and one for all, so that no second launch adds them up.
//
// Bytes per fp32 element: norm 4, unscaling 8. Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/multi_tensor.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

struct WriteNorms {
  int64_t tensors;
  double *norm, *norms;  // norms may be null

  __device__ __forceinline__ void operator()(double sum, const NormWorkspace& work) const {
    if (threadIdx.x == 0) *norm = sqrt(sum);
    if (norms == nullptr) return;
    for (int64_t tensor = threadIdx.x; tensor < tensors; tensor += kOptimThreads) {
      norms[tensor] = sqrt(work.tensor_sums[tensor]);
    }
  }
};

__global__ void __launch_bounds__(kOptimThreads)
    unscale_kernel(TensorTable table, const float* inv_scale, float* found_inf) {
  const ChunkEntry chunk = table.chunk[blockIdx.x];
  const ListEntry entry = table.entries[chunk.tensor];
  const float factor = *inv_scale;
  bool finite = true;
  with_element_type(entry.type, [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_element(chunk, entry.aligned, [&](auto width, int64_t element) {
      constexpr int kWidth = decltype(width)::value;
      T* const data = static_cast<T*>(entry.data) + element;
      float x[kWidth];
      load_floats(static_cast<const T*>(data), x);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        finite = finite && is_finite(x[i]);
        x[i] *= factor;
      }
      store_floats(data, x);
    });
  });
  if (!finite) *found_inf = 1.0F;  // all writers write the same value
}

}  // namespace

void multi_tensor_norm(const TensorTable& table, const NormWorkspace& workspace, double* norm, double* norms,
                       Stream stream) {
  if (table.tensors > 0) {
    launch_norm(table, workspace, WriteNorms{.tensors = table.tensors, .norm = norm, .norms = norms}, stream);
  }
}

void multi_tensor_unscale(const TensorTable& table, const float* inv_scale, float* found_inf, Stream stream) {
  if (table.tensors == 0) return;
  launch(unscale_kernel, {.x = static_cast<unsigned>(table.chunks)}, kOptimThreads, 0, stream, table, inv_scale,
         found_inf);
}

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
