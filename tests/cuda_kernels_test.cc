// The kernels of cuda_ext, run by the emulator in every order of threads and blocks, against scalar twins in double.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cuda_ext/launchers.h"
#include "cuda_ext/math.h"
#include "tests/cuda_emulator.h"
#include "tests/testing.h"

namespace bert::kernels {
namespace {

using emulator::DeviceBuffer;
using testing::Tolerance;

template <class T>
constexpr Tolerance kTolerance = testing::kFloat;
template <>
constexpr Tolerance kTolerance<c10::Half> = testing::kHalf;
template <>
constexpr Tolerance kTolerance<c10::BFloat16> = testing::kBFloat16;

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

// ---- layer norm ----

struct LayerNormCase {
  int64_t rows, columns;
  bool bias = true, residual = true;
  double p = 0.1;
  size_t shift = 0;         // elements by which x is moved off its alignment
  bool every_order = true;  // else one
};

constexpr uint64_t kSeed = 0x1234567890ABCDEF;
constexpr uint32_t kSite = 3077;
constexpr double kEps = 1e-12;

bool kept(int64_t key, int64_t column, double p) {
  const Philox4 words = dropout_words(kSeed, static_cast<uint64_t>(key), kSite, static_cast<uint32_t>(column / 4));
  return p == 0.0 || words.word[column % 4] >= dropout_threshold(p);
}

template <class T, class P>
void check_layer_norm(const LayerNormCase& c) {
  CAPTURE(c.rows, c.columns, c.bias, c.residual, c.p, c.shift);
  const auto rows = static_cast<size_t>(c.rows), columns = static_cast<size_t>(c.columns), size = rows * columns;
  const auto x_values = random_values<T>(size + c.shift, 1, 0.25), residual_values = random_values<T>(size, 2),
             dy_values = random_values<T>(size, 3);
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
    rstd[r] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + kEps);
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
      workspace(static_cast<size_t>(layer_norm_backward_workspace(c.rows, c.columns)));
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
  run_in_every_order(
      c.every_order,
      [&] {
        layer_norm_forward<T, P>({.input = input,
                                  .gamma = gamma.data(),
                                  .beta = beta.data(),
                                  .eps = static_cast<float>(kEps),
                                  .y = got_y.data(),
                                  .mean = got_mean.data(),
                                  .rstd = got_rstd.data()},
                                 nullptr);
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
      },
      got_y, got_mean, got_rstd, got_dx, got_dresidual, got_dgamma, got_dbeta, got_dbias);

  check_close("y", got_y.values(), y);
  check_close("mean", got_mean.values(), mean);
  check_close("rstd", got_rstd.values(), rstd);
  check_close("dx", got_dx.values(), dx);
  if (c.residual) check_close("dresidual", got_dresidual.values(), dresidual);
  check_close("dgamma", got_dgamma.values(), dgamma);
  check_close("dbeta", got_dbeta.values(), dbeta);
  if (c.bias) check_close("dbias", got_dbias.values(), dbias);
  if (c.p > 0.0 && c.columns > 1) {
    size_t different = 0;  // from the mask of the scalar rule
    for (size_t i = 0; i < size; ++i) {
      different += to_float(got_dresidual[i]) != 0.0F && (to_float(got_dx[i]) == 0.0F) != dropped[i] ? 1 : 0;
    }
    CHECK(different == 0);
  }
}

TEMPLATE_TEST_CASE("LayerNorm kernels equal their scalar twin", "[cuda_emulator]", (std::pair<float, float>),
                   (std::pair<c10::Half, c10::Half>), (std::pair<c10::Half, float>),
                   (std::pair<c10::BFloat16, c10::BFloat16>), (std::pair<c10::BFloat16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  // Vectors in registers, one to four passes, with and without a tail.
  for (const int64_t columns : {8, 128, 256, 312, 384, 512, 768, 1024})
    check_layer_norm<T, P>({.rows = 5, .columns = columns});
  check_layer_norm<T, P>({.rows = 4, .columns = 264, .p = 0.0});
  check_layer_norm<T, P>({.rows = 1, .columns = 16, .bias = false, .p = 0.5});
  check_layer_norm<T, P>({.rows = 9, .columns = 40, .bias = false, .residual = false, .p = 0.0});  // plain layer norm
  // Vectors in a loop: forward above 1024, backward above 2048.
  check_layer_norm<T, P>({.rows = 2, .columns = 1032});
  check_layer_norm<T, P>({.rows = 2, .columns = 2056});
  // One by one.
  for (const int64_t columns : {1, 2, 7, 33, 100, 257}) check_layer_norm<T, P>({.rows = 3, .columns = columns});
  check_layer_norm<T, P>({.rows = 3, .columns = 12, .bias = false, .residual = false, .p = 0.0});
  check_layer_norm<T, P>({.rows = 3, .columns = 24, .shift = 1});
}

TEST_CASE("LayerNorm kernels walk down more rows than they have blocks", "[cuda_emulator]") {
  // Backward has 264 blocks of 256 threads.
  check_layer_norm<c10::Half, float>({.rows = 266, .columns = 1800, .p = 0.0, .every_order = false});
  check_layer_norm<float, float>({.rows = 266, .columns = 1801, .p = 0.0, .every_order = false});
}

TEST_CASE("LayerNorm kernels take no rows", "[cuda_emulator]") {
  check_layer_norm<float, float>({.rows = 0, .columns = 16});
  check_layer_norm<c10::Half, float>({.rows = 0, .columns = 7});
}

// ---- bias + GELU ----

struct BiasGeluCase {
  int64_t rows, columns;
  size_t shift = 0;
};

template <class T, class P>
void check_bias_gelu(const BiasGeluCase& c, bool tanh) {
  CAPTURE(c.rows, c.columns, c.shift, tanh);
  const auto rows = static_cast<size_t>(c.rows), columns = static_cast<size_t>(c.columns), size = rows * columns;
  const auto x_values = random_values<T>(size + c.shift, 11), dy_values = random_values<T>(size, 12);
  const auto bias_values = random_values<P>(columns, 13);
  std::vector<double> y(size), dx(size), dbias(columns);
  for (size_t at = 0; at < size; ++at) {
    const double v = static_cast<double>(to_float(x_values[at + c.shift])) +
                     static_cast<double>(to_float(bias_values[at % columns]));
    double derivative = 0.0;
    if (tanh) {
      const double slope = std::sqrt(2.0 / M_PI), t = std::tanh(slope * (v + 0.044715 * v * v * v));
      y[at] = 0.5 * v * (1.0 + t);
      derivative = 0.5 * (1.0 + t) + 0.5 * v * (1.0 - t * t) * slope * (1.0 + 3.0 * 0.044715 * v * v);
    } else {
      const double phi = 0.5 * std::erfc(-v / std::sqrt(2.0));
      y[at] = v * phi;
      derivative = phi + v * std::exp(-0.5 * v * v) / std::sqrt(2.0 * M_PI);
    }
    dx[at] = static_cast<double>(to_float(dy_values[at])) * derivative;
    dbias[at % columns] += dx[at];
  }
  const DeviceBuffer<T> x(x_values), dy(dy_values), got_y(size), got_dx(size);
  const DeviceBuffer<P> bias(bias_values), got_dbias(columns);
  const DeviceBuffer<float> workspace(static_cast<size_t>(bias_gelu_backward_workspace(c.rows, c.columns)));
  run_in_every_order(
      /*every_order=*/c.rows < 100,
      [&] {
        bias_gelu_forward<T, P>({.rows = c.rows,
                                 .columns = c.columns,
                                 .tanh = tanh,
                                 .x = x.data() + c.shift,
                                 .bias = bias.data(),
                                 .y = got_y.data()},
                                nullptr);
        bias_gelu_backward<T, P>({.rows = c.rows,
                                  .columns = c.columns,
                                  .tanh = tanh,
                                  .dy = dy.data(),
                                  .x = x.data() + c.shift,
                                  .bias = bias.data(),
                                  .dx = got_dx.data(),
                                  .dbias = got_dbias.data(),
                                  .workspace = workspace.data()},
                                 nullptr);
      },
      got_y, got_dx, got_dbias);
  check_close("y", got_y.values(), y);
  check_close("dx", got_dx.values(), dx);
  check_close("dbias", got_dbias.values(), dbias);
}

TEMPLATE_TEST_CASE("GELU kernels equal their scalar twin", "[cuda_emulator]", (std::pair<float, float>),
                   (std::pair<c10::Half, c10::Half>), (std::pair<c10::Half, float>),
                   (std::pair<c10::BFloat16, c10::BFloat16>), (std::pair<c10::BFloat16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  for (const bool tanh : {true, false}) {
    for (const int64_t columns : {8, 312, 1024, 1032, 1, 7, 130})
      check_bias_gelu<T, P>({.rows = 7, .columns = columns}, tanh);
    check_bias_gelu<T, P>({.rows = 4, .columns = 24, .shift = 1}, tanh);
    check_bias_gelu<T, P>({.rows = 0, .columns = 24}, tanh);
  }
}

TEST_CASE("GELU kernels walk down more rows than they have blocks", "[cuda_emulator]") {
  // Backward has at most 792 blocks of 2 rows.
  for (const int64_t columns : {8, 9}) check_bias_gelu<float, float>({.rows = 1603, .columns = columns}, true);
}

}  // namespace
}  // namespace bert::kernels
