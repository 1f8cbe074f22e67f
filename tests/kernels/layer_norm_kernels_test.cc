// The LayerNorm kernels, run by the emulator in every order of threads and blocks, against scalar twins in double and
// the CPU's loops.
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
void check_layer_norm(const LayerNormCase& c) {
  CAPTURE(c.rows, c.columns, c.bias, c.residual, c.p, c.shift, c.eps, c.constant);
  const auto rows = static_cast<size_t>(c.rows), columns = static_cast<size_t>(c.columns), size = rows * columns;
  const auto x_values =
      c.constant ? std::vector<T>(size + c.shift, from_float<T>(1.5F)) : random_values<T>(size + c.shift, 1, 0.25);
  const auto residual_values = random_values<T>(size, 2), dy_values = random_values<T>(size, 3);
  const auto bias_values = random_values<P>(columns, 4), gamma_values = random_values<P>(columns, 5, 1.0),
             beta_values = random_values<P>(columns, 6);
  std::vector<int64_t> key_values(rows);
  for (size_t i = 0; i < rows; ++i) key_values[i] = static_cast<int64_t>((i / 3 + 7) << 16 | i % 3);

  // The twin.
  std::vector<double> y(size), mean(rows), rstd(rows), dx(size), dresidual(size), dgamma(columns), dbeta(columns),
      dbias(columns);
  std::vector<bool> dropped(size);
  const double scale = 1.0 / (1.0 - c.p);
  for (size_t r = 0; r < rows; ++r) {
    std::vector<double> z(columns), xhat(columns), g(columns);
    double sum_g = 0.0, sum_gx = 0.0, squares = 0.0;
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = r * columns + i;
      z[i] = static_cast<double>(to_float(x_values[at + c.shift])) +
             (c.bias ? static_cast<double>(to_float(bias_values[i])) : 0.0);
      dropped[at] = !kept(key_values[r], static_cast<int64_t>(i), c.p);
      z[i] =
          (dropped[at] ? 0.0 : z[i] * scale) + (c.residual ? static_cast<double>(to_float(residual_values[at])) : 0.0);
      mean[r] += z[i] / static_cast<double>(columns);
    }
    for (const double value : z) squares += (value - mean[r]) * (value - mean[r]);
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + c.eps);
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = r * columns + i;
      const auto gradient = static_cast<double>(to_float(dy_values[at]));
      xhat[i] = (z[i] - mean[r]) * rstd[r];
      y[at] = xhat[i] * static_cast<double>(to_float(gamma_values[i])) + static_cast<double>(to_float(beta_values[i]));
      g[i] = gradient * static_cast<double>(to_float(gamma_values[i]));
      sum_g += g[i] / static_cast<double>(columns);
      sum_gx += g[i] * xhat[i] / static_cast<double>(columns);
      dgamma[i] += gradient * xhat[i];
      dbeta[i] += gradient;
    }
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = r * columns + i;
      dresidual[at] = rstd[r] * (g[i] - sum_g - xhat[i] * sum_gx);
      dx[at] = dropped[at] ? 0.0 : dresidual[at] * scale;
      dbias[i] += dx[at];
    }
  }

  // The kernels.
  const DeviceBuffer<T> x(x_values), residual(residual_values), dy(dy_values), got_y(size), got_dx(size),
      got_dresidual(size);
  const DeviceBuffer<P> bias(bias_values), gamma(gamma_values), beta(beta_values), got_dgamma(columns),
      got_dbeta(columns), got_dbias(columns);
  const DeviceBuffer<int64_t> keys(key_values);
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
                     .scale = static_cast<float>(scale)};
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

  check_close("y", got_y.values(), y);
  check_close("mean", got_mean.values(), mean);
  check_close("rstd", got_rstd.values(), rstd);
  check_close("dx", got_dx.values(), dx);
  if (c.residual) check_close("dresidual", got_dresidual.values(), dresidual);
  const double rounding =
      c.rows > 64 ? 4.0 : 1.0;  // factor of tolerances: the terms of many rows are larger than their sum
  check_close("dgamma", got_dgamma.values(), dgamma, rounding);
  check_close("dbeta", got_dbeta.values(), dbeta, rounding);
  if (c.bias) check_close("dbias", got_dbias.values(), dbias, rounding);
  if (c.p > 0.0 && c.columns > 1) {
    size_t different = 0;  // from the mask of the scalar rule
    for (size_t i = 0; i < size; ++i) {
      different += to_float(got_dresidual[i]) != 0.0F && (to_float(got_dx[i]) == 0.0F) != dropped[i] ? 1 : 0;
    }
    CHECK(different == 0);
  }

  // The CPU twins.
  for_each_cpu_twin([&](const CpuTwin& twin) {
    const std::vector<float> cpu_bias = c.bias ? floats(bias_values) : std::vector<float>(columns),
                             cpu_gamma = floats(gamma_values), cpu_beta = floats(beta_values);
    const std::vector<T> cpu_residual = c.residual ? residual_values : std::vector<T>(size);
    std::vector<T> cpu_y(size), cpu_dx(size), cpu_dresidual(size);
    std::vector<float> cpu_mean(rows), cpu_rstd(rows), scratch(static_cast<size_t>(simd::norm_scratch(c.columns)));
    KeptBits bits(c.rows, c.columns);
    simd::LayerNorm arguments{};
    arguments.input = c.bias || c.residual ? simd::NormInput::kResidual : simd::NormInput::kPlain;
    arguments.type = kCpuType<T>;
    arguments.columns = c.columns;
    arguments.x = x_values.data() + c.shift;
    arguments.residual = cpu_residual.data();
    arguments.bias = cpu_bias.data();
    arguments.gamma = cpu_gamma.data();
    arguments.beta = cpu_beta.data();
    arguments.eps = static_cast<float>(c.eps);
    arguments.mask = bits.mask(input.dropout);
    arguments.y = cpu_y.data();
    arguments.mean = cpu_mean.data();
    arguments.rstd = cpu_rstd.data();
    arguments.grad = dy_values.data();
    arguments.dx = cpu_dx.data();
    arguments.dresidual = cpu_dresidual.data();
    arguments.scratch = scratch.data();
    twin.kernels.layer_norm(arguments, 0, c.rows);
    arguments.mask.drawn = true;
    const std::vector<float> sums = sums_by_pieces(c.rows, 3 * columns, [&](int64_t begin, int64_t end, float* piece) {
      arguments.partial = piece;
      twin.kernels.layer_norm_backward(arguments, begin, end);
    });
    const auto sum = [&](size_t index) {
      const float* first = sums.data() + index * columns;
      return std::vector<float>(first, first + columns);
    };
    check_close("y", got_y.values(), cpu_y);
    check_close("mean", got_mean.values(), cpu_mean);
    check_close("rstd", got_rstd.values(), cpu_rstd);
    // dz is rstd times a difference of two numbers that round separately. With one column the difference is 0 and rstd
    // is 1e6.
    const double cancelled = largest(rstd);
    check_close("dx", got_dx.values(), cpu_dx, cancelled);
    if (c.residual) check_close("dresidual", got_dresidual.values(), cpu_dresidual, cancelled);
    check_close("dgamma", got_dgamma.values(), sum(0), rounding);
    check_close("dbeta", got_dbeta.values(), sum(1), rounding);
    if (c.bias) check_close("dbias", got_dbias.values(), sum(2), rounding * cancelled);
    if (c.p > 0.0) bits.check(dropped);
  });
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
