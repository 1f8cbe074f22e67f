// What the kernels' .cu files offer to the rest: functions of raw device pointers and a stream that check nothing and
// only launch (shapes, dtypes and memory are the caller's: cuda_ext/cuda/ops.cc in bert, the tests under the emulator). T is the
// type of activations, P that of parameters: (float, float), (Half, Half), (Half, float), (BFloat16, BFloat16),
// (BFloat16, float). Sums and statistics are fp32. Every function accepts zero rows, and runs the vector kernels where
// columns is a multiple of 8 and all pointers are aligned to 16 bytes, the slower kernels elsewhere. Results depend on
// nothing but the arguments.
#pragma once

#include <cstdint>

// nvcc's build and the emulator's are two programs made of one source: two namespaces, so that they may meet in one
// executable.
#ifdef BERT_EMULATE
#define BERT_KERNEL_BUILD emulated
#else
#define BERT_KERNEL_BUILD device
#endif

struct CUstream_st;

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

using Stream = CUstream_st*;

/// Which elements are dropped: Note [Dropout keys], philox.h. keys null: nothing is.
struct DropoutMask {
  const int64_t* keys = nullptr;  // [rows]
  uint64_t seed = 0;
  uint32_t site = 0;
  uint32_t threshold = 0;  // dropout_threshold(p)
  float scale = 1.0F;      // 1 / (1 - p)
};

/// What is normalised: z = dropout(x + bias) + residual.
template <class T, class P>
struct LayerNormInput {
  int64_t rows = 0, columns = 0;
  const T* x = nullptr;         // [rows, columns]
  const P* bias = nullptr;      // [columns], or null
  const T* residual = nullptr;  // [rows, columns], or null
  DropoutMask dropout;
};

template <class T, class P>
struct LayerNormForward {
  LayerNormInput<T, P> input;
  const P *gamma = nullptr, *beta = nullptr;  // [columns]
  float eps = 0.0F;
  T* y = nullptr;                          // [rows, columns]
  float *mean = nullptr, *rstd = nullptr;  // [rows]
};

template <class T, class P>
struct LayerNormBackward {
  LayerNormInput<T, P> input;
  const T* dy = nullptr;     // [rows, columns]
  const P* gamma = nullptr;  // [columns]
  const float *mean = nullptr, *rstd = nullptr;
  T* dx = nullptr;
  T* dresidual = nullptr;                                   // or null
  P *dgamma = nullptr, *dbeta = nullptr, *dbias = nullptr;  // [columns]; dbias or null
  float* workspace = nullptr;                               // layer_norm_backward_workspace() floats
};

/// y = (z - mean) * rstd * gamma + beta.
template <class T, class P>
void layer_norm_forward(const LayerNormForward<T, P>& arguments, Stream stream);

template <class T, class P>
void layer_norm_backward(const LayerNormBackward<T, P>& arguments, Stream stream);
/// plain: without bias, dropout and residual.
int64_t layer_norm_backward_workspace(int64_t rows, int64_t columns, bool plain);

template <class T, class P>
struct BiasGeluForward {
  int64_t rows = 0, columns = 0;
  bool tanh = true;         // the tanh form; else erf
  const T* x = nullptr;     // [rows, columns]
  const P* bias = nullptr;  // [columns]
  T* y = nullptr;           // [rows, columns]
};

template <class T, class P>
struct BiasGeluBackward {
  int64_t rows = 0, columns = 0;
  bool tanh = true;
  const T *dy = nullptr, *x = nullptr;  // [rows, columns]
  const P* bias = nullptr;              // [columns]
  T* dx = nullptr;                      // [rows, columns]
  P* dbias = nullptr;                   // [columns]
  float* workspace = nullptr;           // bias_gelu_backward_workspace() floats
};

/// y = gelu(x + bias).
template <class T, class P>
void bias_gelu_forward(const BiasGeluForward<T, P>& arguments, Stream stream);

template <class T, class P>
void bias_gelu_backward(const BiasGeluBackward<T, P>& arguments, Stream stream);
int64_t bias_gelu_backward_workspace(int64_t rows, int64_t columns);

// ---- embedding ----

/// One of each table: words, positions, token types.
struct TokenIds {
  const int64_t *word = nullptr, *position = nullptr, *type = nullptr;  // [rows]
};
struct TableRows {
  int64_t word = 0, position = 0, type = 0;  // below 2^31 in all
};
inline constexpr int kFusedTypeRows = 2;  // a type table of no more rows gets its gradient from embedding_backward

template <class T>
struct EmbeddingInput {
  int64_t rows = 0, columns = 0;
  TokenIds ids;
  TableRows table_rows;
  const T *word = nullptr, *position = nullptr, *type = nullptr;  // [its rows, columns]
  DropoutMask dropout;                                            // of y
};

template <class T, class P>
struct EmbeddingForward {
  EmbeddingInput<T> input;
  const P *gamma = nullptr, *beta = nullptr;  // [columns]
  float eps = 0.0F;
  T* y = nullptr;                          // [rows, columns]
  float *mean = nullptr, *rstd = nullptr;  // [rows]
};

template <class T, class P>
struct EmbeddingBackward {
  EmbeddingInput<T> input;
  const T* dy = nullptr;     // [rows, columns]
  const P* gamma = nullptr;  // [columns]
  const float *mean = nullptr, *rstd = nullptr;
  float* dsum = nullptr;                  // [rows, columns], the gradient of the rows' sum
  P *dgamma = nullptr, *dbeta = nullptr;  // [columns]
  T* dtype = nullptr;                     // [type rows, columns] where those are at most kFusedTypeRows
  float* workspace = nullptr;             // embedding_backward_workspace() floats
};

/// The ids of all tables as one list of keys, which the caller sorts.
struct EmbeddingKeys {
  int64_t rows = 0;
  TokenIds ids;
  TableRows table_rows;
  int32_t* keys = nullptr;  // [embedding_key_count()]
};

/// Sums the rows of dsum that share a key into the tables, of which the other rows stay as they are.
template <class T>
struct EmbeddingScatter {
  int64_t rows = 0, columns = 0, count = 0;  // count: of keys
  TableRows table_rows;
  const float* dsum = nullptr;                                 // [rows, columns]
  const int32_t* keys = nullptr;                               // [count], ascending
  const int64_t* order = nullptr;                              // [count], where each stood before a stable sort
  T *dword = nullptr, *dposition = nullptr, *dtype = nullptr;  // dtype null: not here
  float* workspace = nullptr;                                  // embedding_scatter_workspace() floats
};

/// y = dropout(LayerNorm(word row + position row + type row)). A token with an id outside of its table gives a row of
/// NaN.
template <class T, class P>
void embedding_forward(const EmbeddingForward<T, P>& arguments, Stream stream);

template <class T, class P>
void embedding_backward(const EmbeddingBackward<T, P>& arguments, Stream stream);
int64_t embedding_backward_workspace(int64_t rows, int64_t columns);

void embedding_keys(const EmbeddingKeys& arguments, Stream stream);
int64_t embedding_key_count(int64_t rows, int64_t type_rows);

template <class T>
void embedding_scatter(const EmbeddingScatter<T>& arguments, Stream stream);
int64_t embedding_scatter_workspace(int64_t count, int64_t columns);

// ---- cross entropy ----

template <class T>
struct CrossEntropyForward {
  int64_t rows = 0, columns = 0, num_classes = 0;   // num_classes <= columns: the others are padding
  const T* logits = nullptr;                        // [rows, columns], any alignment
  const int64_t* labels = nullptr;                  // [rows]
  float *logsumexp = nullptr, *row_loss = nullptr;  // [rows]
  float* loss = nullptr;                            // [1], the mean of row_loss; 0 without rows
};

template <class T>
struct CrossEntropyBackward {
  int64_t rows = 0, columns = 0, num_classes = 0;
  T* logits = nullptr;  // [rows, columns], any alignment; becomes the gradient, 0 in the padding
  const int64_t* labels = nullptr;
  const float *logsumexp = nullptr, *grad = nullptr;  // [rows]; [1]
};

/// The mean of -log softmax(logits[:, :num_classes])[label]. The loss and gradient of a row whose label is outside of
/// [0, num_classes) are NaN.
template <class T>
void cross_entropy_forward(const CrossEntropyForward<T>& arguments, Stream stream);

template <class T>
void cross_entropy_backward(const CrossEntropyBackward<T>& arguments, Stream stream);

// ---- dropout ----

template <class T>
struct DropoutForward {
  int64_t rows = 0, columns = 0;
  const T* x = nullptr;  // [rows, columns]
  T* y = nullptr;        // [rows, columns], or x
  DropoutMask dropout;   // with keys
};

struct DropoutKept {
  int64_t rows = 0, columns = 0;
  bool* kept = nullptr;  // [rows, columns]
  DropoutMask dropout;   // with keys
};

template <class T>
void dropout_forward(const DropoutForward<T>& arguments, Stream stream);

/// Which elements dropout keeps.
void dropout_kept(const DropoutKept& arguments, Stream stream);

// ---- softmax ----

template <class T>
struct MaskedSoftmaxInput {
  int64_t sequences = 0, heads = 0, queries = 0, columns = 0;
  const int32_t* cu_seqlens = nullptr;  // [sequences + 1]
  float scale = 1.0F;
  const T* scores = nullptr;  // [sequences, heads, queries, columns]
  DropoutMask dropout;        // keys by token, [cu_seqlens[sequences]]; the site of the first head
};

template <class T>
struct MaskedSoftmaxForward {
  MaskedSoftmaxInput<T> input;
  T* y = nullptr;              // like scores
  float* logsumexp = nullptr;  // [sequences, heads, queries]
};

template <class T>
struct MaskedSoftmaxBackward {
  MaskedSoftmaxInput<T> input;
  const T* dy = nullptr;  // like scores
  const float* logsumexp = nullptr;
  T* dscores = nullptr;  // like scores
};

/// y = dropout(softmax(scale scores)) over the first `length` columns of the first `length` queries of each sequence,
/// length = the difference of its cu_seqlens; 0 in the rest, which is not read, and logsumexp -infinity.
template <class T>
void masked_softmax_forward(const MaskedSoftmaxForward<T>& arguments, Stream stream);

template <class T>
void masked_softmax_backward(const MaskedSoftmaxBackward<T>& arguments, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
