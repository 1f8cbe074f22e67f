// The dropout kernels, run by the emulator in every order of threads and blocks: masks bit-equal to the rule.
#include <vector>

#include "cuda_ext/kernels/dropout.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

struct DropoutCase {
  int64_t rows, columns;
  double p = 0.3;
  size_t shift = 0;         // elements by which x is moved off its alignment
  bool every_order = true;  // false: one order
};

template <class T>
void check_dropout(const DropoutCase& c) {
  CAPTURE(c.rows, c.columns, c.p, c.shift);
  const auto columns = static_cast<size_t>(c.columns), size = static_cast<size_t>(c.rows) * columns;
  const auto x_values = random_values<T>(size + c.shift, 31);
  std::vector<int64_t> key_values;
  for (int64_t r = 0; r < c.rows; ++r) key_values.push_back((r / 3 + (int64_t{1} << 33)) << 16 | r % 3);
  const DeviceBuffer<T> x(x_values), y(size);
  const DeviceBuffer<bool> got_kept(size);
  const DeviceBuffer<int64_t> keys(key_values);
  const DropoutMask mask{.keys = keys.data(),
                         .seed = kSeed,
                         .site = kSite,
                         .threshold = dropout_threshold(c.p),
                         .scale = static_cast<float>(1.0 / (1.0 - c.p))};
  run_in_every_order(
      c.every_order,
      [&] {
        const int64_t vectors = vectors_of([&] {
          dropout_forward<T>(
              {.rows = c.rows, .columns = c.columns, .x = x.data() + c.shift, .y = y.data(), .dropout = mask}, nullptr);
        });
        CHECK((vectors > 0) == (c.columns % 8 == 0 && c.shift == 0 && c.rows > 0));
        dropout_kept({.rows = c.rows, .columns = c.columns, .kept = got_kept.data(), .dropout = mask}, nullptr);
      },
      y, got_kept);
  std::vector<double> want(size);
  size_t different = 0;
  for (size_t i = 0; i < size; ++i) {
    const bool keep = kept(key_values[i / columns], static_cast<int64_t>(i % columns), c.p);
    different += keep == got_kept[i] ? 0 : 1;
    want[i] = keep ? static_cast<double>(to_float(x_values[i + c.shift])) / (1.0 - c.p) : 0.0;
  }
  CHECK(different == 0);
  check_close("y", y.values(), want);
}

TEMPLATE_TEST_CASE("Dropout kernels keep what the rule says", "[unit][cuda_emulator]", float, c10::Half,
                   c10::BFloat16) {
  for (const int64_t columns : {8, 128, 256, 312, 384, 512, 768, 1024, 1032, 1, 2, 7, 33, 130}) {
    check_dropout<TestType>({.rows = 5, .columns = columns});
  }
  check_dropout<TestType>({.rows = 3, .columns = 24, .p = 0.0});
  check_dropout<TestType>({.rows = 3, .columns = 24, .p = 0.999});
  check_dropout<TestType>({.rows = 3, .columns = 24, .shift = 1});
  check_dropout<TestType>({.rows = 0, .columns = 24});
}

TEST_CASE("Dropout kernels walk down more rows than they have blocks", "[unit][cuda_emulator]") {
  check_dropout<c10::BFloat16>({.rows = 8195, .columns = 1, .every_order = false});  // of 8,192
}

}  // namespace
}  // namespace bert::kernels
