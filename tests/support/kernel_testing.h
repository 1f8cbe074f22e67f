// Shared code of the kernel tests: random inputs, tolerances, the dropout mask by its definition, runs in every order
// of threads and blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/scalar/math.h"
#include "cuda_ext/scalar/philox.h"
#include "tests/kernels/cuda_emulator.h"
#include "tests/testing.h"

namespace bert::kernels {

using emulator::DeviceBuffer;
using testing::Tolerance;

template <class T>
inline constexpr Tolerance kTolerance = testing::kFloat;
template <>
inline constexpr Tolerance kTolerance<c10::Half> = testing::kHalf;
template <>
inline constexpr Tolerance kTolerance<c10::BFloat16> = testing::kBFloat16;

template <class T>
double number(T x) {
  return static_cast<double>(to_float(x));
}
inline double number(double x) { return x; }

template <class T>
std::vector<T> random_values(size_t size, unsigned seed, double center = 0.0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1.5, 1.5);
  std::vector<T> values(size);
  for (T& value : values) value = from_float<T>(static_cast<float>(center + uniform(random)));
  return values;
}

/// True if |got - want| <= scale * tolerance of T, or both are the same infinity.
template <class T, class Want>
void check_close(const std::string& name, const std::vector<T>& got, const std::vector<Want>& want,
                 double scale = 1.0) {
  const Tolerance tolerance = kTolerance<T>;
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = number(got[i]), wanted = number(want[i]);
    if (value == wanted) continue;
    if (std::abs(value - wanted) <= scale * (tolerance.absolute + tolerance.relative * std::abs(wanted))) continue;
    FAIL(name << "[" << i << "]: got " << value << ", want " << wanted);
  }
}

/// Runs body in every order. Checks that each buffer has the same bits after each order, and that nothing was written
/// outside of it.
template <class Body, class... Buffers>
void run_in_every_order(bool every_order, const Body& body, const Buffers&... buffers) {
  std::vector<std::string> first;
  const auto bytes = [](const auto& buffer) {
    return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size() * sizeof(*buffer.data()));
  };
  const auto run = [&] {
    (buffers.fill_with_nan(), ...);
    body();
    const std::vector<std::string> now = {bytes(buffers)...};
    if (first.empty()) first = now;
    CHECK(now == first);
  };
  if (every_order) {
    emulator::for_each_order(run);
  } else {
    run();
  }
  CHECK((buffers.intact() && ...));
}

/// Number of accesses of 16 bytes or more that body's kernels make.
template <class Body>
int64_t vectors_of(const Body& body) {
  const int64_t before = emulator::vectors();
  body();
  return emulator::vectors() - before;
}

inline constexpr uint64_t kSeed = 0x1234567890ABCDEF;
inline constexpr uint32_t kSite = 3077;

/// True if dropout keeps this element of the row with key `key`: Note [Dropout keys], philox.h.
inline bool kept(int64_t key, int64_t column, double p, uint32_t site = kSite) {
  const Philox4 words = dropout_words(kSeed, static_cast<uint64_t>(key), site, static_cast<uint32_t>(column / 4));
  return p == 0.0 || words.word[column % 4] >= dropout_threshold(p);
}

}  // namespace bert::kernels
