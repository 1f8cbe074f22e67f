// Shared code of the kernel tests: random inputs, tolerances, the dropout mask by its definition, runs in every order
// of threads and blocks, and the CPU's loops for the same operators.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda_ext/kernels/launcher.h"
#include "cuda_ext/scalar/math.h"
#include "cuda_ext/scalar/philox.h"
#include "cuda_ext/simd/kernels.h"
#include "cuda_ext/simd/optim.h"
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

/// The largest |value|, at least 1. It scales the tolerance of sums in which larger numbers nearly cancel.
inline double largest(const std::vector<double>& values) {
  double result = 1.0;
  for (const double value : values) result = std::max(result, std::abs(value));
  return result;
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

// ---- the CPU twins: the loops that the operators run on the CPU ----

template <class T>
inline constexpr simd::Type kCpuType = simd::Type::kFloat;
template <>
inline constexpr simd::Type kCpuType<c10::Half> = simd::Type::kHalf;
template <>
inline constexpr simd::Type kCpuType<c10::BFloat16> = simd::Type::kBFloat16;

struct CpuTwin {
  const simd::Kernels& kernels;
  const OptimKernels& optim;
};

/// Calls body with the loops that every machine can run, and with the best loops for this machine.
template <class Body>
void for_each_cpu_twin(const Body& body) {
  for (const CpuTwin& twin : {CpuTwin{simd::plain_kernels(), optim_kernels(CpuCapability::kPlain)},
                              CpuTwin{simd::kernels(), optim_kernels(cpu_capability())}}) {
    INFO("against the CPU twin, " << twin.kernels.name);
    body(twin);
  }
}

/// Parameters as fp32, which the CPU's loops take.
template <class P>
std::vector<float> floats(const std::vector<P>& values) {
  std::vector<float> result;
  for (const P value : values) result.push_back(to_float(value));
  return result;
}

inline simd::Mask cpu_mask(const DropoutMask& dropout) {
  return {.seed = dropout.seed,
          .site = dropout.site,
          .threshold = dropout.threshold,
          .keys = dropout.keys,
          .scale = dropout.scale};
}

/// The bits of a mask, in which the CPU's loops store the kept elements.
struct KeptBits {
  int64_t columns;
  std::vector<uint8_t> bytes;

  KeptBits(int64_t rows, int64_t row_columns)
      : columns(row_columns), bytes(static_cast<size_t>(rows * simd::kept_bytes(row_columns))) {}
  [[nodiscard]] simd::Mask mask(const DropoutMask& dropout) {
    simd::Mask mask = cpu_mask(dropout);
    mask.kept = bytes.data();
    return mask;
  }
  /// Checks that the bits match `dropped` [rows * columns].
  void check(const std::vector<bool>& dropped) const {
    size_t different = 0;
    for (size_t i = 0; i < dropped.size(); ++i) {
      const auto width = static_cast<size_t>(columns), row = i / width, column = i % width;
      const uint8_t byte = bytes[row * static_cast<size_t>(simd::kept_bytes(columns)) + column / 8];
      different += (byte >> column % 8 & 1) == (dropped[i] ? 1 : 0) ? 1 : 0;
    }
    CHECK(different == 0);
  }
};

/// Sums over rows in the same order as the operators on the CPU: body(begin, end, sums) computes `count` sums of 64
/// rows at a time, and these are added in order.
template <class Body>
std::vector<float> sums_by_pieces(int64_t rows, size_t count, const Body& body) {
  constexpr int64_t kPiece = 64;
  std::vector<float> total(count), piece(count);
  for (int64_t begin = 0; begin < rows; begin += kPiece) {
    body(begin, std::min(rows, begin + kPiece), piece.data());
    for (size_t i = 0; i < count; ++i) total[i] += piece[i];
  }
  return total;
}

}  // namespace bert::kernels
