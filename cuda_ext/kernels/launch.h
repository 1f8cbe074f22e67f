// The language in which kernels are written, and the only file that knows CUDA's runtime. It has three kinds of
// readers:
// - nvcc compiles the kernels: the names below are CUDA's;
// - the host compiler compiles the same kernels for the tests (BERT_EMULATE): the names below are the emulator's, and
//   CUDA is not included;
// - the host files of a CUDA build need stream_of() only.
//
// Names for kernels: threadIdx.x, blockIdx.{x,y}, gridDim.{x,y}, blockDim.x; sync_block(); shuffle(), shuffle_xor(),
// shuffle_down(); take_ticket(); atomic_max(); BERT_SHARED(T, name, N) and BERT_DYNAMIC_SHARED(T, name), handed on as
// SharedPointer<T> and read into a named type (not auto); load<N>(pointer) and store<N>(pointer, vector), N * sizeof(T)
// aligned up to 16 bytes; launch(kernel, grid, block, bytes, stream, ...).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/kernels/vector.h"

namespace bert {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kFullMask = 0xFFFFFFFF;

/// The blocks of a launch.
struct Grid {
  unsigned x = 1, y = 1;
};

}  // namespace bert

#if defined(BERT_EMULATE)
#include "cuda_ext/kernels/launch_emulated.h"
#elif defined(__CUDACC__)

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime.h>

namespace bert {

template <class T>
using SharedPointer = T*;

#define BERT_SHARED(T, name, N) __shared__ T name[N]
#define BERT_DYNAMIC_SHARED(T, name)                           \
  extern __shared__ __align__(16) unsigned char bert_shared[]; \
  T* const name = reinterpret_cast<T*>(bert_shared)

__device__ __forceinline__ void sync_block() { __syncthreads(); }

template <class V>
__device__ __forceinline__ V shuffle(V value, int lane, uint32_t mask = kFullMask) {
  return __shfl_sync(mask, value, lane);
}

template <class V>
__device__ __forceinline__ V shuffle_xor(V value, int lanes, uint32_t mask = kFullMask) {
  return __shfl_xor_sync(mask, value, lanes);
}

template <class V>
__device__ __forceinline__ V shuffle_down(V value, int lanes, uint32_t mask = kFullMask) {
  return __shfl_down_sync(mask, value, lanes);
}

/// Adds 1 to the ticket and returns its value before. One thread of a block calls it, after a barrier. The earlier
/// writes of the block are then visible, behind the next barrier, to the threads of every block whose ticket comes
/// later.
__device__ __forceinline__ unsigned take_ticket(unsigned* ticket) {
  __threadfence();
  const unsigned place = atomicAdd(ticket, 1U);
  __threadfence();
  return place;
}

/// Makes *pointer at least `value`. Neither is negative; NaN is above all numbers. It is an atomic maximum of the bits, as
/// integers, so the result does not depend on the order of the calls.
__device__ __forceinline__ void atomic_max(float* pointer, float value) {
  atomicMax(reinterpret_cast<unsigned*>(pointer), __float_as_uint(value));
}

namespace detail {

/// One instruction each.
template <size_t kBytes>
struct Word;
template <>
struct Word<1> {
  using type = unsigned char;
};
template <>
struct Word<2> {
  using type = unsigned short;
};
template <>
struct Word<4> {
  using type = unsigned;
};
template <>
struct Word<8> {
  using type = uint2;
};
template <>
struct Word<16> {
  using type = uint4;
};

template <class V>
__device__ __forceinline__ void store_word(V* pointer, V word) {
  *pointer = word;
}
// A named instruction, because the compiler makes two or four stores of such an assignment if the words were made one
// by one.
__device__ __forceinline__ void store_word(uint2* pointer, uint2 word) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(pointer)), "r"(word.x), "r"(word.y)
               : "memory");
}
__device__ __forceinline__ void store_word(uint4* pointer, uint4 word) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(pointer)), "r"(word.x),
               "r"(word.y), "r"(word.z), "r"(word.w)
               : "memory");
}

}  // namespace detail

template <int N, class T>
__device__ __forceinline__ Vector<T, N> load(const T* pointer) {
  using Word = typename detail::Word<alignof(Vector<T, N>)>::type;
  Vector<T, N> result;
#pragma unroll
  for (size_t i = 0; i < sizeof(result) / sizeof(Word); ++i) {
    const Word word = reinterpret_cast<const Word*>(pointer)[i];
    memcpy(reinterpret_cast<char*>(result.word) + i * sizeof(Word), &word, sizeof(Word));
  }
  return result;
}

/// `pointer` points to global memory.
template <int N, class T>
__device__ __forceinline__ void store(T* pointer, const Vector<T, N>& vector) {
  using Word = typename detail::Word<alignof(Vector<T, N>)>::type;
#pragma unroll
  for (size_t i = 0; i < sizeof(vector) / sizeof(Word); ++i) {
    Word word;
    memcpy(&word, reinterpret_cast<const char*>(vector.word) + i * sizeof(Word), sizeof(Word));
    detail::store_word(reinterpret_cast<Word*>(pointer) + i, word);
  }
}

/// Queues kernel(arguments...) on the stream. Throws c10::CUDAError when the device refuses the launch.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), Grid grid, unsigned block, size_t shared_bytes, kernels::Stream stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = dim3(grid.x, grid.y);
  configuration.blockDim = dim3(block);
  configuration.dynamicSmemBytes = shared_bytes;
  configuration.stream = stream;
  C10_CUDA_CHECK(cudaLaunchKernelEx(&configuration, kernel, arguments...));
}

}  // namespace bert

#else

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

namespace bert {

/// The stream on which LibTorch works on this tensor's device.
inline kernels::Stream stream_of(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.get_device()).stream();
}

}  // namespace bert

#endif
