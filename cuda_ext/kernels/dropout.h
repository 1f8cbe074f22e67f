// Launchers of dropout.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

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

/// kept = true for the elements that dropout keeps.
void dropout_kept(const DropoutKept& arguments, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
