// The hot loops of the CPU, one table of functions per instruction set. cuda_ext/simd/vectors.inc is compiled once for
// each set, and the best set of the machine is chosen at run time. The loops use plain data only, neither ATen nor
// templates of the standard library: the linker would merge template code of all builds, and older machines would run
// newer instructions.
#ifndef BERT_SIMD_KERNELS_H
#define BERT_SIMD_KERNELS_H

#include <cstdint>

namespace bert::simd {

enum class Type { kFloat, kBFloat16, kHalf };

/// The mask of dropout (philox.h). scale = 1 / (1 - p); threshold 0 drops nothing and needs no keys.
struct Mask {
  uint64_t seed;
  uint32_t site, threshold;
  const int64_t* keys;  // [T]
  float scale;
  // [T, kept_bytes(columns)], one bit a column, or null: written by forward, read by backward if `drawn`. For dropout
  // and LayerNorm.
  uint8_t* kept = nullptr;
  bool drawn = false;
};
constexpr int64_t kept_bytes(int64_t columns) { return (columns + 31) / 32 * 4; }

// A true `stream` below: results are written past the caches, because they are larger (cuda_ext/cpu/tensors.h decides).
// Their rows are then aligned to kStreamAlign bytes.
inline constexpr int64_t kStreamAlign = 64;

/// x, y, grad, dx [T, columns] of the type; bias, dbias [columns].
struct BiasGelu {
  Type type;
  bool tanh, stream;
  int64_t columns;
  const void *x, *grad;
  const float* bias;
  void* out;     // y, or dx
  float* dbias;  // set to the sum over the rows
};

enum class NormInput { kPlain, kResidual, kEmbedding };

/// The normalised input: x; or mask * (x + bias) + residual; or the sum of one row of each table (the mask is then that
/// of the output).
struct LayerNorm {
  NormInput input;
  Type type;
  int64_t columns;
  const void *x, *residual;
  const float* bias;
  const void* tables[3];
  const int64_t* ids[3];
  const float *gamma, *beta;
  float eps;
  Mask mask;
  void* y;
  float *mean, *rstd;  // written by forward, read by backward
  const void* grad;
  void *dx, *dresidual;  // of the type; an embedding's dresidual is fp32: the gradient of the sum
  float* partial;        // dgamma | dbeta | dbias, set to sums over the rows; dbias with kResidual only
  int64_t summed_rows;   // rows of an embedding's third table, whose gradient replaces dbias; 0: none
  float* scratch;        // norm_scratch(columns), one for each thread
  bool stream;           // y, dx, and dresidual except an embedding's
};
constexpr int64_t scratch_columns(int64_t columns) { return (columns + 31) / 32 * 32 + 32; }
inline constexpr int64_t kNormGroup = 4;  // rows at a time
constexpr int64_t norm_scratch(int64_t columns) { return 2 * kNormGroup * scratch_columns(columns); }

/// Sums the rows of `gradient` into the rows of a table by id, in the order of the tokens, in fp32, rounded once. Every
/// row of the table is written; it is 0 if no token has its id.
struct EmbeddingScatter {
  Type type;
  int64_t columns, first_column, last_column;  // of a row; [first_column, last_column) are summed
  const float* gradient;                       // [T, columns]
  const int64_t* tokens;                       // [T], sorted by id, those of one id in their order
  const int64_t* starts;                       // [rows + 1], start of each row's tokens in `tokens`
  void* table;                                 // [rows, columns] of the type
  float* scratch;                              // last_column - first_column, one for each thread
  bool stream;                                 // the table
};

/// logits, dlogits [M, stride] of the type; the first num_classes columns count.
struct CrossEntropy {
  Type type;
  int64_t stride, num_classes;
  void* logits;
  const int64_t* labels;
  float *logsumexp, *loss;  // [M]
  float scale;              // of the gradient
};

struct Dropout {
  Type type;
  int64_t columns;
  const void* x;
  void* y;
  Mask mask;
  float* scratch;  // scratch_columns(columns)
  bool stream;
};

/// One head of one sequence. Rows of qkv and dqkv are 3 * hidden elements apart, rows of out and grad hidden elements.
struct Attention {
  Type type;
  int64_t length, head_size, hidden;
  const void* qkv;   // the sequence's first row, this head's query columns
  void* out;         // written by forward, read by backward
  float* logsumexp;  // [length]
  const void* grad;
  void* dqkv;
  float scale;
  Mask mask;       // site is this head's; keys those of the sequence
  float* scratch;  // attention_scratch()
};
inline constexpr int64_t kQueryBlock =
    48;  // rows of scores at a time, which stay in cache: a multiple of the product's 6 rows
inline constexpr int64_t kAmxRows = 64;  // the same by AMX, at most
/// Floats of scratch memory for sequences of up to `length`.
constexpr int64_t attention_scratch(int64_t length, int64_t head_size) {
  const int64_t keys = (length + 31) / 32 * 32, width = (head_size + 31) / 32 * 32;
  return 6 * keys * width + 4 * kAmxRows * (keys + width) + 2 * scratch_columns(keys) + 256;
}

/// Rows of x [T, columns] of the type as bytes: q = round(x / scale) + zero with scale = max |x of the row| / level, so q
/// is from zero - level to zero + level. A row with NaN or infinity has the scale NaN.
struct Quantize {
  Type type;
  int64_t columns;
  const void* x;
  uint8_t* q;     // [T, columns]
  float* scales;  // [T]
  int32_t level, zero;
};

/// y = (sums - offsets) * scale of the row * scale of the column + bias, of the type.
struct Dequantize {
  Type type;
  bool stream;
  int64_t columns;
  const int32_t *sums, *offsets;               // [T, columns]; [columns]
  const float *scales, *column_scales, *bias;  // [T]; [columns]; [columns]
  void* y;                                     // [T, columns]
};

/// The functions of the table, X(name, parameters). They run over rows [begin, end): of tokens, or of a table in
/// embedding_scatter. cuda_ext/simd/<operator>.inc has a template `name` by element type for each.
#define BERT_SIMD_KERNELS(X)                                                   \
  X(bias_gelu, (const BiasGelu&, int64_t begin, int64_t end))                  \
  X(bias_gelu_backward, (const BiasGelu&, int64_t begin, int64_t end))         \
  X(layer_norm, (const LayerNorm&, int64_t begin, int64_t end))                \
  X(layer_norm_backward, (const LayerNorm&, int64_t begin, int64_t end))       \
  X(embedding_scatter, (const EmbeddingScatter&, int64_t begin, int64_t end))  \
  X(cross_entropy, (const CrossEntropy&, int64_t begin, int64_t end))          \
  X(cross_entropy_backward, (const CrossEntropy&, int64_t begin, int64_t end)) \
  X(dropout, (const Dropout&, int64_t begin, int64_t end))                     \
  X(quantize, (const Quantize&, int64_t begin, int64_t end))                   \
  X(dequantize, (const Dequantize&, int64_t begin, int64_t end))               \
  X(attention, (const Attention&))                                             \
  X(attention_backward, (const Attention&))

struct Kernels {
  const char* name;
#define BERT_FIELD(name, parameters) void(*name) parameters;
  BERT_SIMD_KERNELS(BERT_FIELD)
#undef BERT_FIELD
};

const Kernels& plain_kernels();
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512_bf16_kernels();  // with its conversions of bf16
const Kernels& amx_kernels();          // the same, and attention by AMX

/// The best table for this machine, or the one that a test chose.
const Kernels& kernels();

/// Chooses "plain", "avx2", "avx512", "avx512_bf16" or "amx" by name. Returns false if this machine lacks it. For tests
/// and measurements.
bool choose_kernels(const char* name);

}  // namespace bert::simd

#endif  // BERT_SIMD_KERNELS_H

// The loops of each operator. vectors.inc includes this header a second time to get them.
#ifdef BERT_SIMD_LOOPS
// Dropout comes first: the others use its masks.
#include "cuda_ext/simd/dropout.inc"
// The others, in the order of the alphabet.
#include "cuda_ext/simd/attention.inc"
#include "cuda_ext/simd/bias_gelu.inc"
#include "cuda_ext/simd/cross_entropy.inc"
#include "cuda_ext/simd/embedding.inc"
#include "cuda_ext/simd/int8.inc"
#include "cuda_ext/simd/layer_norm.inc"
#endif
