// Launchers of embedding.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

/// The ids of each table: words, positions, token types.
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

/// Sums the rows of dsum that share a key into the tables. The other rows of the tables stay as they are.
template <class T>
struct EmbeddingScatter {
  int64_t rows = 0, columns = 0, count = 0;  // count: of keys
  TableRows table_rows;
  const float* dsum = nullptr;                                 // [rows, columns]
  const int32_t* keys = nullptr;                               // [count], ascending
  const int64_t* order = nullptr;                              // [count], place of each key before a stable sort
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

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
