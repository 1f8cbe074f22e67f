// y = dropout(LayerNorm(z) gamma + beta), z = word[input_id] + position[position_id] + type[token_type_id], and its
// backward. layer_norm.cuh has the kernels that normalise. They read the tables when a row needs them, and do not keep
// z. A token with an id outside of its table has no row: its z is NaN, and so is everything computed from it. Nothing
// is read or written outside of the tables.
//
// Backward first writes dz [T, columns] in fp32, with the sums of dgamma and dbeta. Then each table row gets the sum of
// its tokens' dz, always in the same order and without atomics:
// - Type: two rows serve a whole batch. If the table has no more, their sums are two more of the sums that a block of
//   layer_norm_row_backward_kernel holds in registers. Then dz is not read again, and 16,000 rows of one id are no
//   bottleneck. Larger type tables are treated like the other tables.
// - Word and position: few of 30,000 words occur, some of them ([MASK], [SEP], "the") thousands of times; a position
//   occurs once in every sequence that is long enough. The ids of both tables become keys of one list (a key is a row
//   of the tables laid end to end). The caller sorts the list stably, so equal keys are neighbours, in the order of the
//   tokens. The list is cut into chunks of 32. A block sums its chunk, key after key. A key that begins and ends in the
//   chunk goes to the table; one that crosses a border goes to the workspace, and the block of the chunk in which the
//   key begins adds up its parts in order. So the work is even however often an id occurs, and the result depends on
//   the ids alone. Position shares the list because sorting its ids with the words' costs one launch less than any
//   other way.
// Rows of the tables without a token are not touched: the caller hands over zeros.
//
// Bytes per element with 2-byte activations: forward 4 (read the word's row, write y; position and type rows come from
// the cache), backward 8 for dz (read dy and the word's row, write 4) and 8 for the scatter (read dz twice, write the
// rows that occur). Ids are checked when a row is read, not when they are loaded two rows ahead: a check there would
// wait for them.
// Compiled for sm_90 and emulated; not measured on a GPU.
#include "cuda_ext/kernels/embedding.h"
#include "cuda_ext/kernels/layer_norm.cuh"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {
namespace {

constexpr int kKeyThreads = 256, kScatterThreads = 128;
constexpr int kChunk = 32;    // of the sorted list: 2,048 blocks for two tables' 65,536 keys, one wave of an H200
constexpr int kInFlight = 4;  // rows that a thread has loads in flight for

template <class T, class P>
struct EmbeddingRows {
  using Activation = T;
  using Parameter = P;
  struct Ids {
    int64_t word = -1, position = -1, type = -1;  // unchecked
  };
  struct Location {
    int32_t word = -1, position = -1, type = -1;  // rows of the tables; -1: none
  };
  template <int N>
  struct Parts {
    Vector<T, N> word = {}, position = {};
  };
  static constexpr bool kDropsOutput = true;
  static constexpr int kSums = 2 + kFusedTypeRows;  // dgamma, dbeta, the first rows of dtype
  static constexpr int kBackwardWarps = 16;

  int64_t rows, columns;
  EmbeddingInput<T> a;
  DropoutMask dropout;
  float* dsum;

  explicit EmbeddingRows(const EmbeddingInput<T>& input, float* gradient = nullptr)
      : rows(input.rows), columns(input.columns), a(input), dropout(input.dropout), dsum(gradient) {}

  __device__ __forceinline__ Ids load_ids(int64_t row) const {
    return {a.ids.word[row], a.ids.position[row], a.ids.type[row]};
  }
  __device__ __forceinline__ Location locate(const Ids& ids) const {
    const bool inside = ids.word >= 0 && ids.word < a.table_rows.word && ids.position >= 0 &&
                        ids.position < a.table_rows.position && ids.type >= 0 && ids.type < a.table_rows.type;
    if (!inside) return {};
    return {static_cast<int32_t>(ids.word), static_cast<int32_t>(ids.position), static_cast<int32_t>(ids.type)};
  }

  template <int N>
  __device__ __forceinline__ Parts<N> read(Location location, int64_t column) const {
    Parts<N> parts;
    if (location.word < 0) return parts;
    parts.word = load<N>(a.word + location.word * columns + column);
    parts.position = load<N>(a.position + location.position * columns + column);
    return parts;
  }

  template <int N>
  __device__ __forceinline__ void add_up(Location location, const Parts<N>& parts, int64_t column, uint32_t /*kept*/,
                                         float (&z)[N]) const {
    Vector<T, N> type = {};
    if (location.word >= 0) type = load<N>(a.type + location.type * columns + column);
    const float outside = location.word < 0 ? NAN : 0.0F;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      z[i] = parts.word[i] + parts.position[i] + type[i] + outside;
    }
  }

  template <int N>
  __device__ __forceinline__ void write(int64_t row, Location location, int64_t column, uint32_t /*kept*/,
                                        float (&dz)[N], float (&sums)[kSums][N]) const {
    store_floats(dsum + row * columns + column, dz);
#pragma unroll
    for (int type = 0; type < kFusedTypeRows; ++type) {
      if (location.type != type) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) sums[2 + type][i] += dz[i];
    }
  }
};

/// keys[table * rows + token] = the row of the tables laid end to end, or the total number of rows for an id outside of
/// its table.
__global__ void __launch_bounds__(kKeyThreads) embedding_keys_kernel(EmbeddingKeys a) {
  const int64_t token = static_cast<int64_t>(blockIdx.x) * kKeyThreads + threadIdx.x;
  if (token >= a.rows) return;  // no barriers and no shuffles below
  const int64_t* const ids = blockIdx.y == 0 ? a.ids.word : blockIdx.y == 1 ? a.ids.position : a.ids.type;
  const int64_t before = blockIdx.y == 0   ? 0
                         : blockIdx.y == 1 ? a.table_rows.word
                                           : a.table_rows.word + a.table_rows.position;
  const int64_t rows = blockIdx.y == 0   ? a.table_rows.word
                       : blockIdx.y == 1 ? a.table_rows.position
                                         : a.table_rows.type;
  const int64_t id = ids[token];
  const bool inside = id >= 0 && id < rows;
  const int64_t none = a.table_rows.word + a.table_rows.position + a.table_rows.type;
  a.keys[blockIdx.y * a.rows + token] = static_cast<int32_t>(inside ? before + id : none);
}

/// Destination of the gradient of a key; null for a key without a row.
template <class T>
__device__ __forceinline__ T* table_row(const EmbeddingScatter<T>& a, int64_t key) {
  if (key < a.table_rows.word) return a.dword + key * a.columns;
  key -= a.table_rows.word;
  if (key < a.table_rows.position) return a.dposition + key * a.columns;
  key -= a.table_rows.position;
  return key < a.table_rows.type && a.dtype != nullptr ? a.dtype + key * a.columns : nullptr;
}

template <class T, int N>
__device__ __forceinline__ void store_row(const EmbeddingScatter<T>& a, int32_t key, int64_t column,
                                          const float (&sum)[N]) {
  T* const to = table_row(a, key);
  if (to == nullptr) return;
  store_floats(to + column, sum);
}

/// The parts of the workspace: [chunks, 2, columns], of the key that continues from the chunk before, and of the key
/// that continues in the next chunk.
template <class T>
__device__ __forceinline__ float* border(const EmbeddingScatter<T>& a, int64_t chunk, int side, int64_t column) {
  return a.workspace + (chunk * 2 + side) * a.columns + column;
}

/// One block per chunk and piece of columns.
template <class T, int N>
__global__ void __launch_bounds__(kScatterThreads) embedding_chunks_kernel(EmbeddingScatter<T> a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  const int64_t chunk = blockIdx.x, first = chunk * kChunk;
  const int64_t last = first + kChunk < a.count ? first + kChunk : a.count;
  bool began_before = first > 0 && a.keys[first - 1] == a.keys[first];
  float sum[N] = {};
  for (int64_t start = first; start < last; start += kInFlight) {
    Vector<float, N> dz[kInFlight];
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      if (start + r >= last) continue;
      int64_t token = a.order[start + r];  // of one of the tables
      while (token >= a.rows) token -= a.rows;
      dz[r] = load<N>(a.dsum + token * a.columns + column);
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      const int64_t i = start + r;
      if (i >= last) continue;
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += dz[r][n];
      const int32_t key = a.keys[i];
      const bool ends = i + 1 == a.count || a.keys[i + 1] != key;
      if (ends && !began_before) {
        store_row(a, key, column, sum);
      } else if (ends || i + 1 == last) {
        store_floats(border(a, chunk, began_before ? 0 : 1, column), sum);
      }
      if (!ends) continue;
      began_before = false;
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] = 0.0F;
    }
  }
}

/// One block per chunk and piece of columns. It adds up the parts of a key that begins in the chunk and continues
/// behind it.
template <class T, int N>
__global__ void __launch_bounds__(kScatterThreads) embedding_borders_kernel(EmbeddingScatter<T> a) {
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  if (column >= a.columns) return;  // no barriers and no shuffles below
  const int64_t chunk = blockIdx.x, first = chunk * kChunk, next = first + kChunk;
  if (next >= a.count) return;
  const int32_t key = a.keys[next - 1];
  const bool began_before = first > 0 && a.keys[first - 1] == key;
  if (a.keys[next] != key || began_before) return;
  float sum[N];
  load_floats(border(a, chunk, 1, column), sum);
  bool goes_on = true;  // a chunk that starts with the key has a part of it
  for (int64_t other = chunk + 1; goes_on; other += kInFlight) {
    Vector<float, N> part[kInFlight] = {};
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
      goes_on = (other + r) * kChunk < a.count && a.keys[(other + r) * kChunk] == key;
      if (goes_on) part[r] = load<N>(border(a, other + r, 0, column));
    }
#pragma unroll
    for (int r = 0; r < kInFlight; ++r) {
#pragma unroll
      for (int n = 0; n < N; ++n) sum[n] += part[r][n];
    }
  }
  store_row(a, key, column, sum);
}

template <class T, int N>
void launch_scatter(const EmbeddingScatter<T>& a, Stream stream) {
  const auto threads = static_cast<unsigned>(
      at_most(kWarpSize * static_cast<int64_t>(ceil_divide(a.columns, kWarpSize * N)), kScatterThreads));
  const Grid grid{.x = ceil_divide(a.count, kChunk), .y = ceil_divide(a.columns, threads * N)};
  launch(embedding_chunks_kernel<T, N>, grid, threads, 0, stream, a);
  launch(embedding_borders_kernel<T, N>, grid, threads, 0, stream, a);
}

template <class T>
bool tables_aligned(const EmbeddingInput<T>& input) {
  return all_aligned(input.word, input.position, input.type);
}

}  // namespace

template <class T, class P>
void embedding_forward(const EmbeddingForward<T, P>& a, Stream stream) {
  normalise<EmbeddingRows<T, P>>({.rows = EmbeddingRows<T, P>(a.input),
                                  .gamma = a.gamma,
                                  .beta = a.beta,
                                  .eps = a.eps,
                                  .y = a.y,
                                  .mean = a.mean,
                                  .rstd = a.rstd},
                                 tables_aligned(a.input), stream);
}

int64_t embedding_backward_workspace(int64_t rows, int64_t columns) {
  using Rows = EmbeddingRows<float, float>;
  return backward_blocks(rows, columns, Rows::kBackwardWarps) * Rows::kSums * columns;
}

template <class T, class P>
void embedding_backward(const EmbeddingBackward<T, P>& a, Stream stream) {
  using Rows = EmbeddingRows<T, P>;
  const int64_t columns = a.input.columns;
  if (columns == 0) return;
  const int64_t blocks = normalise_backward<Rows>({.rows = Rows(a.input, a.dsum),
                                                   .dy = a.dy,
                                                   .gamma = a.gamma,
                                                   .mean = a.mean,
                                                   .rstd = a.rstd,
                                                   .workspace = a.workspace},
                                                  tables_aligned(a.input) && all_aligned(a.dsum), stream);
  const int64_t stride = Rows::kSums * columns, type_rows = a.input.table_rows.type;
  sum_columns<P>({.partial = a.workspace,
                  .blocks = blocks,
                  .columns = columns,
                  .output = {a.dgamma, a.dbeta},
                  .block_stride = stride},
                 2, stream);
  if (type_rows == 0 || type_rows > kFusedTypeRows) return;
  sum_columns<T>({.partial = a.workspace + 2 * columns,
                  .blocks = blocks,
                  .columns = columns,
                  .output = {a.dtype, type_rows > 1 ? a.dtype + columns : nullptr},
                  .block_stride = stride},
                 static_cast<int>(type_rows), stream);
}

int64_t embedding_key_count(int64_t rows, int64_t type_rows) { return rows * (type_rows > kFusedTypeRows ? 3 : 2); }

void embedding_keys(const EmbeddingKeys& a, Stream stream) {
  const auto tables = static_cast<unsigned>(embedding_key_count(1, a.table_rows.type));
  if (a.rows == 0) return;
  launch(embedding_keys_kernel, {.x = ceil_divide(a.rows, kKeyThreads), .y = tables}, kKeyThreads, 0, stream, a);
}

int64_t embedding_scatter_workspace(int64_t count, int64_t columns) {
  return static_cast<int64_t>(ceil_divide(count, kChunk)) * 2 * columns;
}

template <class T>
void embedding_scatter(const EmbeddingScatter<T>& a, Stream stream) {
  if (a.count == 0 || a.columns == 0) return;
  const bool vectors = a.columns % kVectorWidth == 0 && all_aligned(a.dsum, a.dword, a.dposition, a.dtype, a.workspace);
  vectors ? launch_scatter<T, kVectorWidth>(a, stream) : launch_scatter<T, 1>(a, stream);
}

#define BERT_INSTANTIATE(T, P)                                            \
  template void embedding_forward(const EmbeddingForward<T, P>&, Stream); \
  template void embedding_backward(const EmbeddingBackward<T, P>&, Stream);
BERT_FOR_TYPE_PAIRS(BERT_INSTANTIATE)
#undef BERT_INSTANTIATE
template void embedding_scatter(const EmbeddingScatter<float>&, Stream);
template void embedding_scatter(const EmbeddingScatter<c10::Half>&, Stream);
template void embedding_scatter(const EmbeddingScatter<c10::BFloat16>&, Stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
