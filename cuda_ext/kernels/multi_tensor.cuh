// Shared by the multi-tensor kernels. A block is one chunk of one tensor: 256 threads go over it in vectors of four
// elements, or one by one if the tensor is not aligned.
#pragma once

#include "cuda_ext/kernels/cuda_utils.cuh"
#include "cuda_ext/kernels/multi_tensor_launchers.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kOptimThreads = 256, kOptimWarps = kOptimThreads / kWarpSize, kOptimWidth = 4;

template <int N>
struct Width {
  static constexpr int value = N;
};

template <class T>
struct Element {
  using type = T;
};

template <class Run>
__device__ __forceinline__ void with_element_type(ElementType type, const Run& run) {
  if (type == ElementType::kFloat) {
    run(Element<float>());
  } else if (type == ElementType::kHalf) {
    run(Element<c10::Half>());
  } else {
    run(Element<c10::BFloat16>());
  }
}

/// Calls body(Width<N>, element) for every N elements of the chunk: with N = 4 as far as possible, then with N = 1.
template <class Body>
__device__ __forceinline__ void for_each_element(const ChunkEntry& chunk, bool aligned, const Body& body) {
  const int thread = static_cast<int>(threadIdx.x), vectors = aligned ? chunk.size / kOptimWidth : 0;
  for (int v = thread; v < vectors; v += kOptimThreads) body(Width<kOptimWidth>(), chunk.begin + v * kOptimWidth);
  for (int i = vectors * kOptimWidth + thread; i < chunk.size; i += kOptimThreads) body(Width<1>(), chunk.begin + i);
}

/// The sums of K numbers each over the chunks of a tensor, the same bits in every thread. One barrier.
template <int K>
__device__ __forceinline__ void sum_chunks(const double* sums, int64_t chunks, double (&total)[K],
                                           SharedPointer<double> scratch) {
#pragma unroll
  for (int k = 0; k < K; ++k) total[k] = 0.0;
  for (int64_t chunk = threadIdx.x; chunk < chunks; chunk += kOptimThreads) {
#pragma unroll
    for (int k = 0; k < K; ++k) total[k] += sums[chunk * K + k];
  }
  block_sum<kOptimWarps>(total, scratch);
}

/// Sums of squares of a list of tensors. Every block adds up its chunk. The last block of a tensor adds up the tensor's
/// chunks, and the last tensor's block adds up the tensors and calls finish(sum) in all its threads.
template <class Finish>
__global__ void __launch_bounds__(kOptimThreads) norm_kernel(TensorTable table, NormWorkspace work, Finish finish) {
  BERT_SHARED(double, scratch, 2 * kOptimWarps);
  BERT_SHARED(int, flag, 1);
  const ChunkEntry chunk = table.chunk[blockIdx.x];
  const ListEntry entry = table.entries[chunk.tensor];
  double sum[1] = {};
  const auto add = [&](auto type) {
    using T = typename decltype(type)::type;
    for_each_element(chunk, entry.aligned, [&](auto width, int64_t element) {
      constexpr int kWidth = decltype(width)::value;
      const auto x = load<kWidth>(static_cast<const T*>(entry.data) + element);
      float squares = 0.0F;  // of four elements; fp64 from there on
#pragma unroll
      for (int i = 0; i < kWidth; ++i) squares += x[i] * x[i];
      sum[0] += squares;
    });
  };
  with_element_type(entry.type, add);
  block_sum<kOptimWarps>(sum, scratch);
  if (threadIdx.x == 0) work.chunk_sums[blockIdx.x] = sum[0];
  if (!comes_last(work.tickets + chunk.tensor, entry.chunks, flag)) return;  // the whole block
  sum_chunks(work.chunk_sums + entry.first_chunk, entry.chunks, sum, scratch + kOptimWarps);
  if (threadIdx.x == 0) work.tensor_sums[chunk.tensor] = sum[0];
  if (!comes_last(work.tickets + table.tensors, table.tensors, flag)) return;
  sum_chunks(work.tensor_sums, table.tensors, sum, scratch);
  finish(sum[0], work);
}

template <class Finish>
void launch_norm(const TensorTable& table, const NormWorkspace& work, const Finish& finish, Stream stream) {
  launch(norm_kernel<Finish>, {.x = static_cast<unsigned>(table.chunks)}, kOptimThreads, 0, stream, table, work,
         finish);
}

}  // namespace
}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
