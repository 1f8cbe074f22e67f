// A matrix in 8 bits, as it lies and transposed, and its greatest absolute value, in one pass: products in FP8 read both
// of their operands along the sum, so a linear layer needs each matrix in both ways.
//
// A block of 128 threads owns a tile of 64 rows and 128 columns. A thread reads 8 columns of 8 rows, rounds them, writes
// them, and puts them into shared memory. Then it takes 4 columns of 16 rows from there, turns them in registers, and
// writes 16 bytes of each column. The greatest value is that of each thread, warp and block, then an atomic maximum of
// integers.
//
// Bytes per element of 2 bytes: 4 (read x, write both results).
// Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/cuda_utils.cuh"
#include "cuda_ext/kernels/fp8.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kThreads = 128, kTileRows = 64, kTileColumns = 128;
constexpr int kWords = kTileColumns / 4;              // of a row of the tile
constexpr int kAcross = kTileColumns / kVectorWidth;  // threads of a row that is read
constexpr int kPasses = kTileRows * kAcross / kThreads;
constexpr int kTurned = 16;  // rows that a thread turns: its warp's

/// Byte i of four words, as a word.
__device__ __forceinline__ uint32_t turn(const uint32_t* words, int i) {
  uint32_t turned = 0;
#pragma unroll
  for (int k = 0; k < 4; ++k) turned |= (words[k] >> (8 * i) & 0xFFU) << (8 * k);
  return turned;
}

template <class T, Fp8 format>
__global__ void __launch_bounds__(kThreads) cast_transpose_kernel(Fp8Cast<T> a) {
  BERT_SHARED(uint32_t, tile, kTileRows * kWords);
  BERT_SHARED(float, warp_most, kThreads / kWarpSize);
  const int thread = static_cast<int>(threadIdx.x), lane = lane_of_thread(), warp = warp_of_thread();
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTileRows,
                first_column = static_cast<int64_t>(blockIdx.y) * kTileColumns;
  const float scale = *a.scale;
  uint32_t most = 0;  // |x| as bits, which order as the numbers, NaN above all
  const int place = thread % kAcross;
  const int64_t column = first_column + place * kVectorWidth;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = pass * (kThreads / kAcross) + thread / kAcross;
    float x[kVectorWidth] = {};
    const bool inside = first_row + row < a.rows && column < a.columns;
    if (inside) load_floats(a.x + (first_row + row) * a.columns + column, x);
    Vector<uint8_t, kVectorWidth> bytes;
#pragma unroll
    for (int word = 0; word < 2; ++word) {
      const float* four = x + 4 * word;
      bytes.word[word] = pack_fp8_pair<format>(four[0] * scale, four[1] * scale) |
                         pack_fp8_pair<format>(four[2] * scale, four[3] * scale) << 16;
      tile[row * kWords + 2 * place + word] = bytes.word[word];
    }
#pragma unroll
    for (int i = 0; i < kVectorWidth; ++i) {
      const uint32_t size = bits_of(x[i]) & 0x7FFFFFFFU;
      most = size > most ? size : most;
    }
    if (inside) store(a.y + (first_row + row) * a.columns + column, bytes);
  }
#pragma unroll
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const uint32_t other = shuffle_xor(most, lanes);
    most = other > most ? other : most;
  }
  if (lane == 0) warp_most[warp] = float_of(most);
  sync_block();
  if (thread < kThreads / kWarpSize) atomic_max(a.amax, warp_most[thread]);

  uint32_t rows[kTurned];
#pragma unroll
  for (int r = 0; r < kTurned; ++r) rows[r] = tile[(warp * kTurned + r) * kWords + lane];
  const int64_t row = first_row + warp * kTurned;
  if (row >= a.padded_rows) return;  // no barriers and no shuffles below
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int64_t of_column = first_column + 4 * lane + i;
    Vector<uint8_t, kTurned> turned;
#pragma unroll
    for (int word = 0; word < kTurned / 4; ++word) turned.word[word] = turn(rows + 4 * word, i);
    if (of_column < a.columns) store(a.transposed + of_column * a.padded_rows + row, turned);
  }
}

}  // namespace

template <class T>
void fp8_cast_transpose(const Fp8Cast<T>& a, Stream stream) {
  if (a.rows == 0 || a.columns == 0) return;
  const Grid grid{.x = ceil_divide(a.rows, kTileRows), .y = ceil_divide(a.columns, kTileColumns)};
  launch(a.format == Fp8::kE4M3 ? cast_transpose_kernel<T, Fp8::kE4M3> : cast_transpose_kernel<T, Fp8::kE5M2>, grid,
         kThreads, 0, stream, a);
}

#define BERT_INSTANTIATE(T) template void fp8_cast_transpose(const Fp8Cast<T>&, Stream);
BERT_FOR_TYPES(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
