// Prepared weights: their products are those of linear(), or of bytes.
#include "cuda_ext/prepared_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <limits>

#include "cuda_ext/ops.h"
#include "tests/support/mismatch.h"
#include "tests/testing.h"

using namespace bert;
using ops::PreparedLinear;
using ops::Products;

TEST_CASE("A prepared weight has the products of linear()", "[unit][ops]") {
  at::manual_seed(1);
  // Below and above the size from which oneDNN's layout is used.
  for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{48, 32}, {520, 640}}) {
    const at::Tensor weight = at::randn({outputs, inputs}), bias = at::randn({outputs});
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const bool with_bias : {false, true}) {
        const at::Tensor w = weight.to(type), b = with_bias ? bias.to(type) : at::Tensor();
        const PreparedLinear prepared(w, b);
        for (const int64_t tokens : {1, 7, 300}) {
          CAPTURE(outputs, type, with_bias, tokens);
          const at::Tensor x = at::randn({tokens, inputs}).to(type);
          const at::Tensor got = prepared(x), want = ops::linear(x, w, b);
          CHECK(got.scalar_type() == type);
          const double scale = want.abs().max().item<double>(), epsilon = type == at::kFloat  ? 1e-5
                                                                          : type == at::kHalf ? 0x1p-10
                                                                                              : 0x1p-7;
          CHECK((got.to(at::kFloat) - want.to(at::kFloat)).abs().max().item<double>() <= epsilon * scale);
        }
      }
    }
  }
}

TEST_CASE("A prepared weight is a copy", "[unit][ops]") {
  const at::Tensor weight = at::randn({8, 4}), x = at::randn({3, 4});
  const PreparedLinear prepared(weight);
  const at::Tensor before = prepared(x);
  weight.zero_();
  CHECK(at::equal(prepared(x), before));
  CHECK_THROWS_WITH(PreparedLinear(at::randn({8})), testing::Contains("weight must be [N, K], got [8]"));
  CHECK_THROWS_WITH(PreparedLinear(weight, at::randn({4})), testing::Contains("bias must be [8]"));
}

TEST_CASE("Products of bytes are exact where the bytes are", "[unit][ops]") {
  at::manual_seed(2);
  // Rows of -8001, 0 and 8001 = 63 127 are exact with 7 bits and with 8. Rows of the weight have 127 in them: scale 1.
  for (const int64_t inputs : {1, 3, 16, 770}) {
    CAPTURE(inputs);
    const at::Tensor weight = at::randint(-127, 128, {33, inputs}).to(at::kFloat), bias = at::randn({33});
    weight.select(1, 0).fill_(127);
    at::Tensor x = 8001 * at::randint(-1, 2, {9, inputs}).to(at::kFloat);
    x[0].fill_(8001);  // with the row of 127 below: the largest sums, which must not saturate
    weight[0].fill_(127);
    weight[1].fill_(-127);
    x[1].zero_();
    const at::Tensor want = at::linear(x.to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble));
    const at::Tensor got = PreparedLinear(weight, bias, Products::kInt8)(x);
    CHECK(at::allclose(got.to(at::kDouble), want, 1e-6, 1e-6));
  }
}

TEST_CASE("Products of bytes are near those of numbers, row by row", "[unit][ops]") {
  at::manual_seed(3);
  const at::Tensor weight = at::randn({96, 256}), bias = at::randn({96});
  at::Tensor x = at::randn({50, 256});
  x[7].mul_(1000);  // another row's size changes no other row
  const PreparedLinear bytes(weight, bias, Products::kInt8);
  const at::Tensor got = bytes(x), want = at::linear(x, weight, bias);
  // Rounding to the nearest of 63 steps up to the largest of a row, 4 deviations: 4 / 63 / sqrt(12) a product.
  const at::Tensor error = (got - want).square().mean(1).sqrt(), size = want.square().mean(1).sqrt();
  CHECK((error / size).max().item<double>() < 0.04);
  for (int64_t row = 0; row < x.size(0); ++row) CHECK(at::equal(bytes(x.narrow(0, row, 1))[0], got[row]));
  const int threads = at::get_num_threads();
  at::set_num_threads(3);
  CHECK(at::equal(bytes(x), got));
  at::set_num_threads(threads);
  CHECK(bytes(at::empty({0, 256})).size(0) == 0);
}

TEST_CASE("Products of bytes pass NaN and infinity on, in their rows alone", "[unit][ops]") {
  const at::Tensor weight = at::randn({5, 20});
  at::Tensor x = at::randn({4, 20});
  x[1][3] = std::numeric_limits<float>::quiet_NaN();
  x[2][19] = std::numeric_limits<float>::infinity();
  const at::Tensor y = PreparedLinear(weight, {}, Products::kInt8)(x);
  for (const int64_t row : {1, 2}) CHECK(y[row].isnan().all().item<bool>());
  for (const int64_t row : {0, 3}) CHECK(y[row].isfinite().all().item<bool>());
}

TEST_CASE("Products of bytes refuse what they cannot do", "[unit][ops]") {
  CHECK_THROWS_WITH(PreparedLinear(at::randn({4, 4}).to(at::kBFloat16), {}, Products::kInt8),
                    testing::Contains("the weight must be fp32 [N, K] on the CPU"));
  const PreparedLinear bytes(at::randn({4, 6}), {}, Products::kInt8);
  CHECK_THROWS_WITH(bytes(at::randn({4, 5})), testing::Contains("x must be fp32 [T, 6] on the CPU"));
  CHECK_THROWS_WITH(bytes(at::randn({4, 6}).to(at::kHalf)), testing::Contains("x must be fp32 [T, 6] on the CPU"));
}
