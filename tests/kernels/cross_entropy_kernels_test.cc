// The cross entropy kernels, run by the emulator in every order of threads and blocks, against a scalar twin in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "cuda_ext/kernels/cross_entropy.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

struct CrossEntropyCase {
  int64_t rows, columns, num_classes;
  size_t shift = 0;         // elements by which the logits are moved off their alignment
  bool every_order = true;  // false: one order
  int64_t counted = -1;     // rows that take part; -1: all
  [[nodiscard]] size_t parts() const { return static_cast<size_t>(counted < 0 ? rows : counted); }
};

constexpr float kGrad = 96.0F;  // gradient of the loss: a loss scale

struct Outcome {
  std::vector<double> loss, logsumexp, dlogits;
};

/// The loss and the gradient by their definitions.
template <class T>
Outcome twin(const CrossEntropyCase& c, const std::vector<T>& logits, const std::vector<int64_t>& labels) {
  const auto rows = static_cast<size_t>(c.rows), columns = static_cast<size_t>(c.columns);
  Outcome want{std::vector<double>(1), std::vector<double>(rows), std::vector<double>(rows * columns)};
  for (size_t r = 0; r < c.parts(); ++r) {
    const auto value = [&](size_t i) { return static_cast<double>(to_float(logits[c.shift + r * columns + i])); };
    const auto classes = static_cast<size_t>(c.num_classes), label = static_cast<size_t>(labels[r]);
    double sum = 0.0;
    for (size_t i = 0; i < classes; ++i) sum += std::exp(value(i));
    want.logsumexp[r] = std::log(sum);
    want.loss[0] += (want.logsumexp[r] - value(label)) / static_cast<double>(c.parts());
    for (size_t i = 0; i < classes; ++i) {
      want.dlogits[r * columns + i] = (std::exp(value(i)) / sum - (i == label ? 1.0 : 0.0)) *
                                      static_cast<double>(kGrad) / static_cast<double>(c.parts());
    }
  }
  return want;
}

template <class T>
struct Run {
  std::vector<float> loss, logsumexp;
  std::vector<T> dlogits;
};

template <class T>
Run<T> run(const CrossEntropyCase& c, const std::vector<T>& logit_values, const std::vector<int64_t>& label_values) {
  const auto rows = static_cast<size_t>(c.rows), size = rows * static_cast<size_t>(c.columns);
  const DeviceBuffer<T> logits(logit_values), dlogits(size + c.shift);
  const DeviceBuffer<int64_t> labels(label_values);
  const DeviceBuffer<float> loss(1), logsumexp(rows), row_loss(rows), grad(std::vector<float>{kGrad}),
      counted(std::vector<float>{static_cast<float>(c.counted)});
  const float* const parts = c.counted < 0 ? nullptr : counted.data();
  run_in_every_order(
      c.every_order,
      [&] {
        // A row has vectors only if one fits behind the columns before the first aligned one, at most 7.
        const auto check_vectors = [&](size_t of_rows, int64_t vectors, int64_t row) {
          if (of_rows == 0 || row < 8) CHECK(vectors == 0);
          if (of_rows > 0 && row >= 15) CHECK(vectors > 0);
        };
        const int64_t forward_vectors = vectors_of([&] {
          cross_entropy_forward<T>({.rows = c.rows,
                                    .columns = c.columns,
                                    .num_classes = c.num_classes,
                                    .logits = logits.data() + c.shift,
                                    .labels = labels.data(),
                                    .counted = parts,
                                    .logsumexp = logsumexp.data(),
                                    .row_loss = row_loss.data(),
                                    .loss = loss.data()},
                                   nullptr);
        });
        check_vectors(c.parts(), forward_vectors, c.num_classes);
        std::copy(logit_values.begin(), logit_values.end(), dlogits.data());
        const int64_t backward_vectors = vectors_of([&] {
          cross_entropy_backward<T>({.rows = c.rows,
                                     .columns = c.columns,
                                     .num_classes = c.num_classes,
                                     .logits = dlogits.data() + c.shift,
                                     .labels = labels.data(),
                                     .counted = parts,
                                     .logsumexp = logsumexp.data(),
                                     .grad = grad.data()},
                                    nullptr);
        });
        check_vectors(rows, backward_vectors, c.columns);
      },
      loss, logsumexp, row_loss, dlogits);
  for (size_t i = 0; i < c.shift; ++i) CHECK(to_float(dlogits[i]) == to_float(logit_values[i]));
  const std::vector<T> all = dlogits.values();
  return {loss.values(), logsumexp.values(), {all.begin() + static_cast<int64_t>(c.shift), all.end()}};
}

std::vector<int64_t> labels_of(const CrossEntropyCase& c) {
  std::vector<int64_t> labels;
  for (int64_t r = 0; r < c.rows; ++r) labels.push_back(r == 0 ? c.num_classes - 1 : (r - 1) * 7 % c.num_classes);
  return labels;
}

template <class T>
void check_cross_entropy(const CrossEntropyCase& c) {
  CAPTURE(c.rows, c.columns, c.num_classes, c.shift);
  auto logits = random_values<T>(static_cast<size_t>(c.rows * c.columns) + c.shift, 21);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = c.num_classes; i < c.columns; ++i) {
      logits[c.shift + static_cast<size_t>(r * c.columns + i)] = from_float<T>(INFINITY);  // padding, which is not read
    }
  }
  const std::vector<int64_t> labels = labels_of(c);
  Outcome want = twin(c, logits, labels);
  Run<T> got = run(c, logits, labels);
  want.logsumexp.resize(c.parts());
  got.logsumexp.resize(c.parts());
  const double share = 1.0 / static_cast<double>(c.parts() > 0 ? c.parts() : 1);
  check_close("loss", got.loss, want.loss);
  check_close("logsumexp", got.logsumexp, want.logsumexp);
  check_close("dlogits", got.dlogits, want.dlogits, kGrad * share);
  for (int64_t r = 0; r < c.rows; ++r) {
    for (int64_t i = c.num_classes; i < c.columns; ++i) {
      REQUIRE(to_float(got.dlogits[static_cast<size_t>(r * c.columns + i)]) == 0.0F);
    }
  }
}

TEMPLATE_TEST_CASE("Cross entropy kernels equal their scalar twin", "[unit][cuda_emulator]", float, c10::Half,
                   c10::BFloat16) {
  // Odd sizes begin every row at another alignment. 4,096 columns fill one round of vectors, 16,384 fill all that are
  // in flight.
  for (const int64_t columns : {1, 2, 7, 9, 15, 16, 31, 257}) {
    check_cross_entropy<TestType>({.rows = 5, .columns = columns, .num_classes = columns});
  }
  check_cross_entropy<TestType>({.rows = 1, .columns = 4104, .num_classes = 4104});
  for (const size_t shift : {1, 3, 7}) {
    check_cross_entropy<TestType>({.rows = 3, .columns = 40, .num_classes = 40, .shift = shift});
  }
  check_cross_entropy<TestType>({.rows = 3, .columns = 64, .num_classes = 58});  // the last vector is cut
  check_cross_entropy<TestType>({.rows = 3, .columns = 64, .num_classes = 37});  // and whole vectors are padding
  check_cross_entropy<TestType>({.rows = 3, .columns = 67, .num_classes = 1});
  for (const int64_t counted : {0, 1, 4, 5})
    check_cross_entropy<TestType>({.rows = 5, .columns = 67, .num_classes = 61, .counted = counted});
  check_cross_entropy<TestType>({.rows = 1, .columns = 30522, .num_classes = 30522, .every_order = false});
  check_cross_entropy<TestType>({.rows = 2, .columns = 30528, .num_classes = 30522, .every_order = false});
}

TEST_CASE("Cross entropy adds up more losses than a block has threads", "[unit][cuda_emulator]") {
  check_cross_entropy<float>({.rows = 1032, .columns = 3, .num_classes = 3, .every_order = false});  // of 1024
}

TEST_CASE("Cross entropy of no rows is 0", "[unit][cuda_emulator]") {
  check_cross_entropy<float>({.rows = 0, .columns = 16, .num_classes = 16});
  check_cross_entropy<c10::Half>({.rows = 0, .columns = 7, .num_classes = 5});
}

TEST_CASE("Cross entropy kernels hide neither NaN nor a label outside of the classes", "[unit][cuda_emulator]") {
  const CrossEntropyCase c{.rows = 3, .columns = 48, .num_classes = 40};
  const auto logits = random_values<float>(3 * 48, 22);
  for (const int64_t label : {int64_t{-1}, int64_t{-100}, int64_t{40}, int64_t{47}, int64_t{1} << 40}) {
    CAPTURE(label);
    const Run<float> got = run(c, logits, {3, label, 5});
    CHECK(std::isnan(got.loss[0]));
    for (size_t i = 0; i < 48; ++i) {
      CHECK(std::isfinite(got.dlogits[i]));
      CHECK(std::isnan(got.dlogits[48 + i]) == (i < 40));
    }
  }
  for (const size_t place : {0, 13, 39}) {
    CAPTURE(place);
    auto spoilt = logits;
    spoilt[48 + place] = NAN;
    const Run<float> got = run(c, spoilt, {3, 4, 5});
    CHECK(std::isnan(got.loss[0]));
    CHECK(std::isnan(got.logsumexp[1]));
    CHECK(std::isfinite(got.logsumexp[0]));
    CHECK(std::isnan(got.dlogits[48]));
  }
}

TEST_CASE("Cross entropy kernels take logits of any size", "[unit][cuda_emulator]") {
  // Logits far apart: without subtracting the largest, the sum would overflow or vanish. -infinity is a class of
  // probability 0.
  const CrossEntropyCase c{.rows = 2, .columns = 4, .num_classes = 4};
  const std::vector<float> logits = {1000.0F, 999.0F, -1000.0F, -INFINITY, 5.0F, 5.0F, -INFINITY, -INFINITY};
  const Run<float> got = run(c, logits, {0, 1});
  const double first = std::log1p(std::exp(-1.0));  // 0.3133
  check_close("logsumexp", got.logsumexp, std::vector<double>{1000.0 + first, 5.0 + std::log(2.0)});
  check_close(
      "dlogits", got.dlogits,
      std::vector<double>{(std::exp(-first) - 1.0) * 48, std::exp(-1.0 - first) * 48, 0.0, 0.0, 24.0, -24.0, 0.0, 0.0},
      1e2);
}

TEMPLATE_TEST_CASE("Cross entropy kernels take threads whose logits are all -infinity", "[unit][cuda_emulator]", float,
                   c10::Half, c10::BFloat16) {
  // Most threads have -infinity only; the sums that they hand on are 0.
  const CrossEntropyCase c{.rows = 1, .columns = 4800, .num_classes = 4800, .every_order = false};
  std::vector<TestType> logits(4800, from_float<TestType>(-INFINITY));
  logits[4000] = from_float<TestType>(2.0F);
  logits[4799] = from_float<TestType>(1.0F);
  const Run<TestType> got = run(c, logits, {4799});
  const double want = std::log(std::exp(2.0) + std::exp(1.0));
  check_close("loss", got.loss, std::vector<double>{want - 1.0});
  check_close("logsumexp", got.logsumexp, std::vector<double>{want});
  CHECK(to_float(got.dlogits[0]) == 0.0F);
}

}  // namespace
}  // namespace bert::kernels
