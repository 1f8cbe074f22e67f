// The LayerNorm kernels, run by the emulator in every order of threads and blocks, against scalar twins in double.
#include <cmath>
#include <vector>

#include "cuda_ext/kernels/layer_norm.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

struct LayerNormCase {
  int64_t rows, columns;
  bool bias = true, residual = true;
  double p = 0.1;
  size_t shift = 0;         // elements by which x is moved off its alignment
  bool every_order = true;  // false: one order
  double eps = 1e-12;
  bool constant = false;  // every x is 1.5
};

template <class T, class P>
struct LayerNormValues {
  explicit LayerNormValues(const LayerNormCase& c)
      : rows(static_cast<size_t>(c.rows)), columns(static_cast<size_t>(c.columns)) {
    if (c.constant) x.assign(x.size(), from_float<T>(1.5F));
    for (size_t i = 0; i < rows; ++i) keys.push_back(static_cast<int64_t>((i / 3 + 7) << 16 | i % 3));
  }
  size_t rows, columns, size = rows * columns;
  std::vector<T> x = random_values<T>(size, 1, 0.25), residual = random_values<T>(size, 2),
                 dy = random_values<T>(size, 3);
  std::vector<P> bias = random_values<P>(columns, 4), gamma = random_values<P>(columns, 5, 1.0),
                 beta = random_values<P>(columns, 6);
  std::vector<int64_t> keys;
};

struct LayerNormResults {
  LayerNormResults(size_t rows, size_t columns)
      : y(rows * columns),
        dx(y),
        dresidual(y),
        mean(rows),
        rstd(rows),
        dgamma(columns),
        dbeta(columns),
        dbias(columns) {}
  std::vector<double> y, dx, dresidual, mean, rstd, dgamma, dbeta, dbias;
  std::vector<bool> dropped = std::vector<bool>(y.size());
};

template <class T, class P>
LayerNormResults twin(const LayerNormCase& c, const LayerNormValues<T, P>& v) {
  LayerNormResults want(v.rows, v.columns);
  const double scale = 1.0 / (1.0 - c.p), width = static_cast<double>(v.columns);
  for (size_t r = 0; r < v.rows; ++r) {
    std::vector<double> z(v.columns), xhat(v.columns), g(v.columns);
    double sum_g = 0.0, sum_gx = 0.0, squares = 0.0;
    for (size_t i = 0; i < v.columns; ++i) {
      const size_t at = r * v.columns + i;
      want.dropped[at] = !kept(v.keys[r], static_cast<int64_t>(i), c.p);
      const double x = number(v.x[at]) + (c.bias ? number(v.bias[i]) : 0.0);
      z[i] = (want.dropped[at] ? 0.0 : x * scale) + (c.residual ? number(v.residual[at]) : 0.0);
      want.mean[r] += z[i] / width;
    }
    for (const double value : z) squares += (value - want.mean[r]) * (value - want.mean[r]);
    want.rstd[r] = 1.0 / std::sqrt(squares / width + c.eps);
    for (size_t i = 0; i < v.columns; ++i) {
      const size_t at = r * v.columns + i;
      xhat[i] = (z[i] - want.mean[r]) * want.rstd[r];
      want.y[at] = xhat[i] * number(v.gamma[i]) + number(v.beta[i]);
      g[i] = number(v.dy[at]) * number(v.gamma[i]);
      sum_g += g[i] / width;
      sum_gx += g[i] * xhat[i] / width;
      want.dgamma[i] += number(v.dy[at]) * xhat[i];
      want.dbeta[i] += number(v.dy[at]);
    }
    for (size_t i = 0; i < v.columns; ++i) {
      const size_t at = r * v.columns + i;
      want.dresidual[at] = want.rstd[r] * (g[i] - sum_g - xhat[i] * sum_gx);
      want.dx[at] = want.dropped[at] ? 0.0 : want.dresidual[at] * scale;
      want.dbias[i] += want.dx[at];
    }
  }
  return want;
}

template <class T, class P>
void check_layer_norm(const LayerNormCase& c) {
  CAPTURE(c.rows, c.columns, c.bias, c.residual, c.p, c.shift, c.eps, c.constant);
  const LayerNormValues<T, P> v(c);
  const LayerNormResults want = twin(c, v);
  const size_t rows = v.rows, columns = v.columns, size = v.size;
  std::vector<T> shifted_x(c.shift);
  shifted_x.insert(shifted_x.end(), v.x.begin(), v.x.end());
  // The kernels.
  const DeviceBuffer<T> x(shifted_x), residual(v.residual), dy(v.dy), got_y(size), got_dx(size), got_dresidual(size);
  const DeviceBuffer<P> bias(v.bias), gamma(v.gamma), beta(v.beta), got_dgamma(columns), got_dbeta(columns),
      got_dbias(columns);
  const DeviceBuffer<int64_t> keys(v.keys);
  const DeviceBuffer<float> got_mean(rows), got_rstd(rows),
      workspace(
          static_cast<size_t>(layer_norm_backward_workspace(c.rows, c.columns, !c.bias && !c.residual && c.p == 0.0)));
  LayerNormInput<T, P> input{.rows = c.rows,
                             .columns = c.columns,
                             .x = x.data() + c.shift,
                             .bias = c.bias ? bias.data() : nullptr,
                             .residual = c.residual ? residual.data() : nullptr,
                             .dropout = {}};
  if (c.p > 0.0) {
    input.dropout = {.keys = keys.data(),
                     .seed = kSeed,
                     .site = kSite,
                     .threshold = dropout_threshold(c.p),
                     .scale = static_cast<float>(1.0 / (1.0 - c.p))};
  }
  const bool fast = c.columns % 8 == 0 && c.shift == 0 && c.rows > 0;
  // Up to 1024 columns forward reads its input once; beyond that, once for each statistic and once for y.
  const int64_t read = (c.columns <= 1024 ? 1 : 3) * (1 + (c.bias ? 1 : 0) + (c.residual ? 1 : 0));
  const int64_t idle_warps =
      c.bias && c.columns <= 1024 ? (4 - c.rows % 4) % 4 : 0;  // they read the bias and nothing else
  run_in_every_order(
      c.every_order,
      [&] {
        const int64_t forward_vectors = vectors_of([&] {
          layer_norm_forward<T, P>({.input = input,
                                    .gamma = gamma.data(),
                                    .beta = beta.data(),
                                    .eps = static_cast<float>(c.eps),
                                    .y = got_y.data(),
                                    .mean = got_mean.data(),
                                    .rstd = got_rstd.data()},
                                   nullptr);
        });
        CHECK(forward_vectors == (fast ? c.columns / 8 * (c.rows * (read + 3) + idle_warps) : 0));
        const int64_t backward_vectors = vectors_of([&] {
          layer_norm_backward<T, P>({.input = input,
                                     .dy = dy.data(),
                                     .gamma = gamma.data(),
                                     .mean = got_mean.data(),
                                     .rstd = got_rstd.data(),
                                     .dx = got_dx.data(),
                                     .dresidual = c.residual ? got_dresidual.data() : nullptr,
                                     .dgamma = got_dgamma.data(),
                                     .dbeta = got_dbeta.data(),
                                     .dbias = c.bias ? got_dbias.data() : nullptr,
                                     .workspace = workspace.data()},
                                    nullptr);
        });
        CHECK((backward_vectors > 0) == fast);
      },
      got_y, got_mean, got_rstd, got_dx, got_dresidual, got_dgamma, got_dbeta, got_dbias);

  check_close("y", got_y.values(), want.y);
  check_close("mean", got_mean.values(), want.mean);
  check_close("rstd", got_rstd.values(), want.rstd);
  check_close("dx", got_dx.values(), want.dx);
  if (c.residual) check_close("dresidual", got_dresidual.values(), want.dresidual);
  const double rounding =
      c.rows > 64 ? 4.0 : 1.0;  // factor of tolerances: the terms of many rows are larger than their sum
  check_close("dgamma", got_dgamma.values(), want.dgamma, rounding);
  check_close("dbeta", got_dbeta.values(), want.dbeta, rounding);
  if (c.bias) check_close("dbias", got_dbias.values(), want.dbias, rounding);
  if (c.p > 0.0 && c.columns > 1) {
    size_t different = 0;  // from the mask of the scalar rule
    for (size_t i = 0; i < size; ++i) {
      different += to_float(got_dresidual[i]) != 0.0F && (to_float(got_dx[i]) == 0.0F) != want.dropped[i] ? 1 : 0;
    }
    CHECK(different == 0);
  }
}

TEMPLATE_TEST_CASE("LayerNorm kernels equal their scalar twin", "[unit][cuda_emulator]", (std::pair<float, float>),
                   (std::pair<c10::Half, c10::Half>), (std::pair<c10::Half, float>),
                   (std::pair<c10::BFloat16, c10::BFloat16>), (std::pair<c10::BFloat16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  // Vectors in registers, one to four passes, with and without a tail; 768 and 1024 have kernels of their own.
  for (const int64_t columns : {8, 128, 256, 312, 384, 512, 776, 768, 1024})
    check_layer_norm<T, P>({.rows = 5, .columns = columns});
  check_layer_norm<T, P>({.rows = 4, .columns = 264, .p = 0.0});
  check_layer_norm<T, P>({.rows = 1, .columns = 16, .bias = false, .p = 0.5});
  for (const int64_t columns : {40, 768, 1024})  // plain layer norm
    check_layer_norm<T, P>({.rows = 9, .columns = columns, .bias = false, .residual = false, .p = 0.0});
  // Vectors in a loop: forward above 1024, backward above 2048.
  check_layer_norm<T, P>({.rows = 2, .columns = 1032});
  check_layer_norm<T, P>({.rows = 2, .columns = 2056});
  // One by one.
  for (const int64_t columns : {1, 2, 7, 33, 100, 257}) check_layer_norm<T, P>({.rows = 3, .columns = columns});
  check_layer_norm<T, P>({.rows = 3, .columns = 12, .bias = false, .residual = false, .p = 0.0});
  check_layer_norm<T, P>({.rows = 3, .columns = 24, .shift = 1});
}

TEST_CASE("LayerNorm kernels add eps to the variance, also that of a constant row", "[unit][cuda_emulator]") {
  for (const int64_t columns : {7, 24, 768, 1032, 2056}) {  // every kernel of its own
    check_layer_norm<float, float>({.rows = 3, .columns = columns, .eps = 0.1});
    check_layer_norm<c10::BFloat16, float>({.rows = 3, .columns = columns, .p = 0.0, .eps = 0.1});
    check_layer_norm<c10::Half, float>(
        {.rows = 2, .columns = columns, .bias = false, .residual = false, .p = 0.0, .eps = 0.1, .constant = true});
    check_layer_norm<float, float>(
        {.rows = 2, .columns = columns, .bias = false, .residual = false, .p = 0.0, .eps = 0.1, .constant = true});
  }
}

TEST_CASE("LayerNorm kernels walk down more rows than they have blocks", "[unit][cuda_emulator]") {
  // Backward has 264 blocks of 256 threads, two of which have three rows of 530; that of plain layer norm has 396.
  for (const double p : {0.0, 0.1}) {
    check_layer_norm<c10::Half, float>({.rows = 530, .columns = 1800, .p = p, .every_order = false});
    check_layer_norm<float, float>({.rows = 266, .columns = 1801, .p = p, .every_order = false});
  }
  check_layer_norm<c10::BFloat16, float>(
      {.rows = 398, .columns = 1800, .bias = false, .residual = false, .p = 0.0, .every_order = false});
}

TEST_CASE("LayerNorm kernels take no rows", "[unit][cuda_emulator]") {
  check_layer_norm<float, float>({.rows = 0, .columns = 16});
  check_layer_norm<c10::Half, float>({.rows = 0, .columns = 7});
}

}  // namespace
}  // namespace bert::kernels
