// Draws that generators of random numbers have in common.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

namespace bert {

/// Functions of Python's random module on top of Generator::below(n), a number in [0, n). A generator derives from
/// RandomDraws<Generator>, and has it as a friend if below() is private.
template <class Generator>
class RandomDraws {
 public:
  /// An integer in [low, high], both included. Throws std::invalid_argument when high < low.
  int64_t randint(int64_t low, int64_t high) {
    if (high < low) throw std::invalid_argument("randint: empty range");
    return low + static_cast<int64_t>(generator().below(static_cast<uint64_t>(high - low) + 1));
  }

  /// A random order of anything that can be indexed and swapped (Fisher and Yates), with the draws of random.shuffle.
  template <class Sequence>
  void shuffle(Sequence& items) {
    for (size_t i = items.size(); i-- > 1;) {
      using std::swap;
      swap(items[i], items[generator().below(i + 1)]);
    }
  }

 private:
  Generator& generator() { return static_cast<Generator&>(*this); }
};

}  // namespace bert
