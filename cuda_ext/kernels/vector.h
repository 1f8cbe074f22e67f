// N elements of a row in registers, with conversions to and from float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda_ext/scalar/math.h"

namespace bert {

inline constexpr size_t kVectorBytes = 16;  // the widest access of one thread

/// N elements as the words that memory has. An element is unpacked at its use. (A vector of 16-bit elements that is
/// read under a condition, or one loop turn ahead, would be unpacked right behind its load, and the thread would wait
/// for memory there.)
template <class T, int N>
struct alignas(N * sizeof(T) < kVectorBytes ? N * sizeof(T) : kVectorBytes) Vector {
  using Word =
      std::conditional_t<N * sizeof(T) == 1, uint8_t, std::conditional_t<N * sizeof(T) == 2, uint16_t, uint32_t>>;
  static constexpr int kElements = sizeof(Word) / sizeof(T);  // of a word
  static constexpr int kWords = N / kElements;

  Word word[kWords];

  /// Element i.
  BERT_HOST_DEVICE float operator[](int i) const { return unpack<T>(word[i / kElements], i % kElements); }
};

/// The vector of these values, rounded to nearest even.
template <class T, int N>
BERT_HOST_DEVICE Vector<T, N> pack(const float (&values)[N]) {
  using Word = typename Vector<T, N>::Word;
  Vector<T, N> result;
  if constexpr (Vector<T, N>::kElements == 2) {
    for (int i = 0; i < N / 2; ++i) result.word[i] = pack_pair<T>(values[2 * i], values[2 * i + 1]);
  } else {
    for (int i = 0; i < N; ++i) result.word[i] = static_cast<Word>(bits_of(from_float<T>(values[i])));
  }
  return result;
}

}  // namespace bert
