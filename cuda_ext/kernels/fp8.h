// Launchers of fp8.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/scalar/math.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

template <class T>
struct Fp8Cast {
  int64_t rows = 0, columns = 0;  // columns: a multiple of 16
  int64_t padded_rows = 0;        // of the transposed result: rows up to a multiple of 16
  Fp8 format = Fp8::kE4M3;        // of the results
  const T* x = nullptr;           // [rows, columns]
  const float* scale = nullptr;   // of x in the results, a scalar
  float* amax = nullptr;          // a scalar
  uint8_t* y = nullptr;           // [rows, columns]
  uint8_t* transposed = nullptr;  // [columns, padded_rows], 0 behind the rows
};

/// y = x scale in 8 bits (fp8_byte() in math.h), the same transposed, and amax = the greatest of amax and |x|, or NaN.
/// All pointers to several elements are aligned to 16 bytes.
template <class T>
void fp8_cast_transpose(const Fp8Cast<T>& arguments, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
