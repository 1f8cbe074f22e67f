// The GELU kernels, run by the emulator in every order of threads and blocks, against scalar twins in double.
#include <sys/mman.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>
#include <vector>

#include "cuda_ext/kernels/bias_gelu.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

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
  const bool fast = c.columns % 8 == 0 && c.shift == 0 && c.rows > 0;
  run_in_every_order(
      /*every_order=*/c.rows < 100,
      [&] {
        const int64_t forward_vectors = vectors_of([&] {
          bias_gelu_forward<T, P>({.rows = c.rows,
                                   .columns = c.columns,
                                   .tanh = tanh,
                                   .x = x.data() + c.shift,
                                   .bias = bias.data(),
                                   .y = got_y.data()},
                                  nullptr);
        });
        CHECK((forward_vectors > 0) == fast);
        const int64_t backward_vectors = vectors_of([&] {
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
        });
        CHECK((backward_vectors > 0) == fast);
      },
      got_y, got_dx, got_dbias);
  check_close("y", got_y.values(), y);
  check_close("dx", got_dx.values(), dx);
  check_close("dbias", got_dbias.values(), dbias);
}

TEMPLATE_TEST_CASE("GELU kernels equal their scalar twin", "[unit][cuda_emulator]", (std::pair<float, float>),
                   (std::pair<c10::Half, c10::Half>), (std::pair<c10::Half, float>),
                   (std::pair<c10::BFloat16, c10::BFloat16>), (std::pair<c10::BFloat16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  for (const bool tanh : {true, false}) {
    for (const int64_t columns : {8, 128, 256, 312, 384, 512, 768, 1024, 1032, 1, 7, 130})
      check_bias_gelu<T, P>({.rows = 7, .columns = columns}, tanh);
    check_bias_gelu<T, P>({.rows = 4, .columns = 24, .shift = 1}, tanh);
    check_bias_gelu<T, P>({.rows = 0, .columns = 24}, tanh);
  }
}

TEST_CASE("GELU is as near to its definition as math.h states, and hides neither infinity nor NaN",
          "[unit][cuda_emulator]") {
  // The errors that math.h states for the device bound the host's results too, whose exponential and division are
  // exact. The product with x rounds relative to the result.
  const auto check = [](const char* name, double x, float got, double want) {
    if (std::abs(static_cast<double>(got) - want) <= 5e-7 + 5e-7 * std::abs(want)) return;
    FAIL(name << " at " << x << ": got " << got << ", want " << want);
  };
  for (int i = -12 * 512; i <= 12 * 512; ++i) {
    const double x = i / 512.0, phi = 0.5 * std::erfc(-x / std::sqrt(2.0));
    const double slope = std::sqrt(2.0 / M_PI), u = slope * (x + 0.044715 * x * x * x);
    const double sigmoid = 1.0 / (1.0 + std::exp(-2.0 * u));
    const auto rounded = static_cast<float>(x);
    check("erf", x, GeluErf::value(rounded), x * phi);
    check("erf'", x, GeluErf::derivative(rounded), phi + x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI));
    check("tanh", x, GeluTanh::value(rounded), x * sigmoid);
    check("tanh'", x, GeluTanh::derivative(rounded),
          sigmoid + x * sigmoid * (1.0 - sigmoid) * 2.0 * slope * (1.0 + 3.0 * 0.044715 * x * x));
  }
  // The tail of the exact form has the size that math.h states.
  const double tail = -5.5 * 0.5 * std::erfc(5.5 / std::sqrt(2.0));
  CHECK(GeluErf::value(-5.5F) == testing::Approx(tail).epsilon(3e-3));
  for (float (*function)(float) : {GeluErf::value, GeluErf::derivative, GeluTanh::value, GeluTanh::derivative}) {
    CHECK(std::isnan(function(NAN)));
    CHECK(std::abs(function(-3e4F)) < 1e-20F);
  }
  CHECK(GeluErf::value(INFINITY) == INFINITY);
  CHECK(GeluTanh::value(INFINITY) == INFINITY);
  CHECK(GeluErf::value(3e4F) == 3e4F);
  CHECK(GeluTanh::value(3e4F) == 3e4F);
}

TEST_CASE("GELU kernels walk down more rows than they have blocks", "[unit][cuda_emulator]") {
  // Backward has at most 792 blocks of 2 rows.
  for (const int64_t columns : {8, 9}) check_bias_gelu<float, float>({.rows = 1603, .columns = columns}, true);
  // Forward has at most 32,768 blocks of 4 rows.
  check_bias_gelu<float, float>({.rows = 131'079, .columns = 1}, true);
}

/// Zeros of device memory. A page takes memory when it is written to.
template <class T>
class HugeBuffer {
 public:
  explicit HugeBuffer(size_t size)
      : bytes_(size * sizeof(T)),
        data_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (data_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
    emulator::add_buffer(data_, bytes_);
  }
  HugeBuffer(const HugeBuffer&) = delete;
  ~HugeBuffer() {
    emulator::remove_buffer(data_);
    munmap(data_, bytes_);
  }
  [[nodiscard]] T* data() const { return static_cast<T*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

TEST_CASE("GELU's forward kernel numbers more elements than 32 bits can", "[unit][cuda_emulator]") {
  constexpr int64_t kRows = 131'072, kColumns = 32'776;  // the last block: the last rows, the last 8 columns
  constexpr int64_t kSize = kRows * kColumns;
  static_assert(kSize > std::numeric_limits<uint32_t>::max());
  const HugeBuffer<c10::Half> x(kSize), y(kSize);
  const DeviceBuffer<float> bias(std::vector<float>(kColumns, 0.5F));
  constexpr int64_t kLast = kSize - 8;
  for (int i = 0; i < 8; ++i) x.data()[kLast + i] = static_cast<float>(i);
  const struct Restore {
    ~Restore() { emulator::set_order(emulator::Threads::kAscending, emulator::Blocks::kForwards); }
  } restore;
  emulator::set_order(emulator::Threads::kAscending, emulator::Blocks::kLastOnly);
  bias_gelu_forward<c10::Half, float>(
      {.rows = kRows, .columns = kColumns, .tanh = false, .x = x.data(), .bias = bias.data(), .y = y.data()}, nullptr);
  for (int i = 0; i < 8; ++i) {
    const auto want = static_cast<float>(static_cast<c10::Half>(GeluErf::value(static_cast<float>(i) + 0.5F)));
    CHECK(static_cast<float>(y.data()[kLast + i]) == want);
  }
}

}  // namespace
}  // namespace bert::kernels
