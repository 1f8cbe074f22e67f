// Launchers of cross_entropy.cu.
#pragma once

#include "cuda_ext/kernels/launcher.h"

namespace bert::kernels {
inline namespace BERT_KERNEL_BUILD {

template <class T>
struct CrossEntropyForward {
  int64_t rows = 0, columns = 0, num_classes = 0;   // num_classes <= columns: the others are padding
  const T* logits = nullptr;                        // [rows, columns], any alignment
  const int64_t* labels = nullptr;                  // [rows]
  const float* counted = nullptr;                   // [1], the first rows that take part; nullptr: all
  float *logsumexp = nullptr, *row_loss = nullptr;  // [rows], undefined of rows that take no part
  float* loss = nullptr;                            // [1], the mean of row_loss; 0 without rows
};

template <class T>
struct CrossEntropyBackward {
  int64_t rows = 0, columns = 0, num_classes = 0;
  T* logits = nullptr;  // [rows, columns], any alignment; becomes the gradient, 0 in the padding
  const int64_t* labels = nullptr;
  const float* counted = nullptr;                     // as above
  const float *logsumexp = nullptr, *grad = nullptr;  // [rows]; [1]
};

/// The mean of -log softmax(logits[:, :num_classes])[label]. The loss and gradient of a row whose label is outside of
/// [0, num_classes) are NaN. The gradient of a row that takes no part is 0.
template <class T>
void cross_entropy_forward(const CrossEntropyForward<T>& arguments, Stream stream);

template <class T>
void cross_entropy_backward(const CrossEntropyBackward<T>& arguments, Stream stream);

}  // namespace BERT_KERNEL_BUILD
}  // namespace bert::kernels
