// What the tests of the kernels share: random inputs, tolerances, the dropout mask by its definition, and a run in
// every order of threads and blocks.
#pragma once

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda_ext/math.h"
#include "cuda_ext/philox.h"
#include "tests/cuda_emulator.h"
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
std::vector<T> random_values(size_t size, unsigned seed, double center = 0.0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1.5, 1.5);
  std::vector<T> values(size);
  for (T& value : values) value = from_float<T>(static_cast<float>(center + uniform(random)));
  return values;
}

template <class T>
void check_close(const std::string& name, const std::vector<T>& got, const std::vector<double>& want,
                 double scale = 1.0) {
  const Tolerance tolerance = kTolerance<T>;
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double value = static_cast<double>(to_float(got[i]));
    if (std::abs(value - want[i]) <= scale * (tolerance.absolute + tolerance.relative * std::abs(want[i]))) continue;
    FAIL(name << "[" << i << "]: got " << value << ", want " << want[i]);
  }
}

/// Runs body in every order and checks that each buffer holds the same bits after each, and that nothing was written
/// around it.
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

inline constexpr uint64_t kSeed = 0x1234567890ABCDEF;
inline constexpr uint32_t kSite = 3077;

/// Whether dropout keeps an element of the row with this key: Note [Dropout keys], philox.h.
inline bool kept(int64_t key, int64_t column, double p, uint32_t site = kSite) {
  const Philox4 words = dropout_words(kSeed, static_cast<uint64_t>(key), site, static_cast<uint32_t>(column / 4));
  return p == 0.0 || words.word[column % 4] >= dropout_threshold(p);
}

}  // namespace bert::kernels
