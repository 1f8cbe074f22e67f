// Rounding to FP8 against a table of its numbers, and the kernel that rounds and turns a matrix, in every order of threads
// and blocks, against a loop.
#include <cmath>
#include <limits>
#include <vector>

#include "cuda_ext/kernels/fp8.h"
#include "tests/support/fp8_table.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

template <Fp8 format>
void check_rounding() {
  const Fp8Table table(format);
  for (uint32_t upper = 0; upper < 65536; ++upper) {  // all numbers of bf16, and the fp32 numbers just above and below
    for (const uint32_t lower : {0x0000U, 0x0001U, 0x7FFFU, 0xFFFFU}) {
      const float x = float_of(upper << 16 | lower);
      const uint32_t got = fp8_byte<format>(x);
      if (table.is_nearest(x, got)) continue;
      FAIL("the byte of " << x << " is " << got << ", which is " << table.number(got));
    }
  }
  const uint32_t pair = pack_fp8_pair<format>(1.0F, -1e9F);
  CHECK(table.number(pair & 0xFF) == 1.0);
  CHECK(table.number(pair >> 8) == -table.most());
}

TEST_CASE("Rounding to FP8 is to the nearest number, to even halfway, and never to infinity", "[unit]") {
  check_rounding<Fp8::kE4M3>();
  check_rounding<Fp8::kE5M2>();
  CHECK(Fp8Table(Fp8::kE4M3).most() == 448);
  CHECK(Fp8Table(Fp8::kE5M2).most() == 57344);
}

struct CastCase {
  int64_t rows, columns;
  Fp8 format = Fp8::kE4M3;
  float scale = 100.0F, amax = 0.0F;
  float odd = 0.0F;  // replaces an element in the middle; 0: none
};

template <class T>
void check_cast(const CastCase& c) {
  CAPTURE(c.rows, c.columns, c.scale, c.odd);
  const auto rows = static_cast<size_t>(c.rows), columns = static_cast<size_t>(c.columns),
             padded = (rows + 15) / 16 * 16;
  std::vector<T> values = random_values<T>(rows * columns, 5);
  if (c.odd != 0.0F) values[rows * columns / 2] = from_float<T>(c.odd);
  std::vector<uint8_t> y(rows * columns), transposed(columns * padded);
  float amax = c.amax;
  for (size_t row = 0; row < rows; ++row) {
    for (size_t column = 0; column < columns; ++column) {
      const float x = to_float(values[row * columns + column]), scaled = x * c.scale;
      const uint32_t byte = c.format == Fp8::kE4M3 ? fp8_byte<Fp8::kE4M3>(scaled) : fp8_byte<Fp8::kE5M2>(scaled);
      y[row * columns + column] = transposed[column * padded + row] = static_cast<uint8_t>(byte);
      amax = std::isnan(x) || std::isnan(amax) ? std::numeric_limits<float>::quiet_NaN() : std::max(amax, std::abs(x));
    }
  }
  const DeviceBuffer<T> x(values);
  const DeviceBuffer<float> scale(std::vector<float>{c.scale}), got_amax(1);
  const DeviceBuffer<uint8_t> got_y(y.size()), got_transposed(transposed.size());
  run_in_every_order(
      /*every_order=*/c.rows < 200,
      [&] {
        *got_amax.data() = c.amax;
        fp8_cast_transpose<T>({.rows = c.rows,
                               .columns = c.columns,
                               .padded_rows = static_cast<int64_t>(padded),
                               .format = c.format,
                               .x = x.data(),
                               .scale = scale.data(),
                               .amax = got_amax.data(),
                               .y = got_y.data(),
                               .transposed = got_transposed.data()},
                              nullptr);
      },
      got_y, got_transposed, got_amax);
  CHECK(got_y.values() == y);
  CHECK(got_transposed.values() == transposed);
  CHECK((got_amax.values().front() == amax || (std::isnan(amax) && std::isnan(got_amax.values().front()))));
}

TEMPLATE_TEST_CASE("The kernel for FP8 rounds, turns and finds the greatest value as a loop does",
                   "[unit][cuda_emulator]", float, c10::Half, c10::BFloat16) {
  for (const Fp8 format : {Fp8::kE4M3, Fp8::kE5M2}) {
    for (const int64_t rows : {1, 15, 16, 17, 63, 64, 65, 130}) {
      for (const int64_t columns : {16, 112, 128, 144, 272}) check_cast<TestType>({rows, columns, format});
    }
    check_cast<TestType>({3, 32, format, 1.0F, 7.0F});             // an earlier amax stays
    check_cast<TestType>({70, 32, format, 1.0F, 0.0F, NAN});       // NaN is above all
    check_cast<TestType>({70, 32, format, 1.0F, 0.0F, INFINITY});  // the result is the largest number
    check_cast<TestType>({70, 32, format, 1e6F, 0.0F, -3.0F});     // and so is what is too large
  }
  check_cast<TestType>({0, 32});
}

}  // namespace
}  // namespace bert::kernels
