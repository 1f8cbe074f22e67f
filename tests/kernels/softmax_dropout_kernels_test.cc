// The kernels of masked softmax and dropout, run by the emulator in every order of threads and blocks, against a scalar
// twin in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda_ext/kernels/softmax_dropout.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

struct MaskedSoftmaxCase {
  std::vector<int32_t> lengths;
  int64_t heads = 2, queries = 0, columns = 0;
  double p = 0.2;
  size_t shift = 0;         // elements by which the scores are moved off their alignment
  bool every_order = true;  // false: one order
};

constexpr double kScale = 0.7;

template <class T>
void check_masked_softmax(const MaskedSoftmaxCase& c) {
  CAPTURE(c.lengths, c.heads, c.queries, c.columns, c.p, c.shift);
  const auto columns = static_cast<size_t>(c.columns);
  const size_t rows = c.lengths.size() * static_cast<size_t>(c.heads * c.queries), size = rows * columns;
  std::vector<int32_t> cu_values = {0};
  for (const int32_t length : c.lengths) cu_values.push_back(cu_values.back() + length);
  std::vector<int64_t> key_values;
  for (int64_t t = 0; t < cu_values.back(); ++t) key_values.push_back((t / 3 + 7) << 16 | t % 3);
  auto score_values = random_values<T>(size + c.shift, 41), dy_values = random_values<T>(size, 42);

  // The twin. Padding holds NaN, which must not be read.
  std::vector<double> y(size), logsumexp(rows, -INFINITY), dscores(size);
  std::vector<bool> dropped(size), padding(size, true);
  for (size_t r = 0; r < rows; ++r) {
    const size_t sequence = r / static_cast<size_t>(c.heads * c.queries);
    const auto head = static_cast<uint32_t>(r / static_cast<size_t>(c.queries) % static_cast<size_t>(c.heads));
    const auto query = static_cast<int64_t>(r % static_cast<size_t>(c.queries));
    const auto length = static_cast<size_t>(std::min<int64_t>(c.lengths[sequence], c.columns));
    const size_t count = query < c.lengths[sequence] ? length : 0;
    std::vector<double> probability(columns), t(columns);
    double sum = 0.0, delta = 0.0;
    for (size_t i = 0; i < columns; ++i) {
      T& score = score_values[c.shift + r * columns + i];
      if (i < count) {
        probability[i] = std::exp(kScale * static_cast<double>(to_float(score)));
        sum += probability[i];
      } else {
        score = dy_values[r * columns + i] = from_float<T>(NAN);
      }
    }
    if (count > 0) logsumexp[r] = std::log(sum);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = r * columns + i;
      padding[at] = false;
      dropped[at] = !kept(key_values[static_cast<size_t>(cu_values[sequence] + query)], static_cast<int64_t>(i), c.p,
                          kSite + head);
      const double keep = dropped[at] ? 0.0 : 1.0 / (1.0 - c.p);
      probability[i] /= sum;
      t[i] = keep * static_cast<double>(to_float(dy_values[at]));
      y[at] = probability[i] * keep;
      delta += probability[i] * t[i];
    }
    for (size_t i = 0; i < count; ++i) dscores[r * columns + i] = kScale * probability[i] * (t[i] - delta);
  }

  // The kernels.
  const DeviceBuffer<T> scores(score_values), dy(dy_values), got_y(size), got_dscores(size);
  const DeviceBuffer<int32_t> cu(cu_values);
  const DeviceBuffer<int64_t> keys(key_values);
  const DeviceBuffer<float> got_logsumexp(rows);
  MaskedSoftmaxInput<T> input{.sequences = static_cast<int64_t>(c.lengths.size()),
                              .heads = c.heads,
                              .queries = c.queries,
                              .columns = c.columns,
                              .cu_seqlens = cu.data(),
                              .scale = static_cast<float>(kScale),
                              .scores = scores.data() + c.shift,
                              .dropout = {}};
  if (c.p > 0.0) {
    input.dropout = {.keys = keys.data(),
                     .seed = kSeed,
                     .site = kSite,
                     .threshold = dropout_threshold(c.p),
                     .scale = static_cast<float>(1.0 / (1.0 - c.p))};
  }
  const bool fast = c.columns % 8 == 0 && c.columns <= 1024 && c.shift == 0 && rows > 0;
  run_in_every_order(
      c.every_order,
      [&] {
        const int64_t forward_vectors = vectors_of([&] {
          masked_softmax_forward<T>({.input = input, .y = got_y.data(), .logsumexp = got_logsumexp.data()}, nullptr);
        });
        CHECK((forward_vectors > 0) == fast);
        const int64_t backward_vectors = vectors_of([&] {
          masked_softmax_backward<T>(
              {.input = input, .dy = dy.data(), .logsumexp = got_logsumexp.data(), .dscores = got_dscores.data()},
              nullptr);
        });
        CHECK((backward_vectors > 0) == fast);
      },
      got_y, got_logsumexp, got_dscores);
  check_close("y", got_y.values(), y);
  check_close("dscores", got_dscores.values(), dscores);
  check_close("logsumexp", got_logsumexp.values(), logsumexp);
  const auto check_mask = [&](const auto& probabilities) {
    size_t different = 0;  // from the mask of the scalar rule
    for (size_t i = 0; i < size; ++i) {
      different += (to_float(probabilities[i]) == 0.0F) != (padding[i] || dropped[i]) ? 1 : 0;
    }
    CHECK(different == 0);
  };
  check_mask(got_y);
}

TEMPLATE_TEST_CASE("Masked softmax kernels equal their scalar twin", "[unit][cuda_emulator]", float, c10::Half,
                   c10::BFloat16) {
  // In registers: 8, 16, 32 lanes of a row, then two and four vectors of a lane; lengths that end within a vector.
  for (const int32_t columns : {8, 64, 72, 128, 256, 264, 512, 520, 1024}) {
    check_masked_softmax<TestType>({.lengths = {5, columns, columns / 2 + 1}, .queries = 3, .columns = columns});
  }
  check_masked_softmax<TestType>({.lengths = {5, 0, 40, 17}, .heads = 3, .queries = 40, .columns = 40});
  check_masked_softmax<TestType>({.lengths = {24, 1}, .queries = 24, .columns = 24, .p = 0.0});
  // A column at a time.
  for (const int32_t columns : {1, 7, 33, 100, 1032}) {
    check_masked_softmax<TestType>({.lengths = {3, columns, 0, columns / 2}, .queries = 5, .columns = columns});
  }
  check_masked_softmax<TestType>({.lengths = {9, 4}, .queries = 9, .columns = 9, .p = 0.0});
  check_masked_softmax<TestType>({.lengths = {16, 4}, .queries = 6, .columns = 16, .shift = 1});
}

TEST_CASE("Masked softmax kernels take nothing, lengths beyond the columns, and many heads", "[unit][cuda_emulator]") {
  for (const int64_t columns : {8, 7}) {
    check_masked_softmax<float>({.lengths = {}, .queries = 4, .columns = columns});
    check_masked_softmax<float>({.lengths = {0, 0}, .queries = 4, .columns = columns});
    check_masked_softmax<float>({.lengths = {20}, .queries = 20, .columns = columns});
    check_masked_softmax<c10::BFloat16>(  // more than the grid is tall
        {.lengths = {1, 1}, .heads = 1025, .queries = 1, .columns = columns, .p = 0.0, .every_order = false});
  }
}

TEST_CASE("Masked softmax kernels let NaN through within its row", "[unit][cuda_emulator]") {
  for (const int64_t columns : {8, 7}) {
    std::vector<float> values(static_cast<size_t>(2 * columns), 1.0F);
    values[3] = NAN;
    const DeviceBuffer<float> scores(values), y(values.size()), logsumexp(2);
    const DeviceBuffer<int32_t> cu(std::vector<int32_t>{0, 5});
    masked_softmax_forward<float>({.input = {.sequences = 1,
                                             .heads = 1,
                                             .queries = 2,
                                             .columns = columns,
                                             .cu_seqlens = cu.data(),
                                             .scale = 1.0F,
                                             .scores = scores.data(),
                                             .dropout = {}},
                                   .y = y.data(),
                                   .logsumexp = logsumexp.data()},
                                  nullptr);
    for (size_t i = 0; i < 5; ++i) {
      CHECK(std::isnan(y[i]));
      CHECK(y[static_cast<size_t>(columns) + i] == testing::Approx(0.2));
    }
    CHECK(y[5] == 0.0F);
    CHECK(std::isnan(logsumexp[0]));
  }
}

}  // namespace
}  // namespace bert::kernels
