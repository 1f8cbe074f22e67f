// The embedding's kernels, run by the emulator in every order of threads and blocks, against scalar twins in double.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "cuda_ext/kernels/embedding.h"
#include "tests/support/kernel_testing.h"

namespace bert::kernels {
namespace {

/// The distribution of the ids of a table.
enum class Ids { kRandom, kOne, kDistinct, kRuns };

struct EmbeddingCase {
  int64_t rows, columns;
  int64_t word_rows = 11, position_rows = 7, type_rows = 2;
  Ids words = Ids::kRandom;
  double p = 0.1;
  size_t shift = 0;         // elements by which the word table is moved off its alignment
  bool every_order = true;  // false: one order
};

constexpr double kEps = 0.1;   // large enough that a result without it differs; LayerNorm's own tests have 1e-12 too
constexpr double kSums = 4.0;  // factor of tolerances: the terms added up in fp32 are far larger than their sum

std::vector<int64_t> random_ids(size_t count, int64_t high, unsigned seed, Ids kind = Ids::kRandom) {
  std::mt19937 random(seed);
  std::vector<int64_t> ids(count);
  for (size_t i = 0; i < count; ++i) {
    // kRuns: the n-th id occurs 16 n times, so that runs of the sorted ids end on a chunk's border, before it and
    // behind it.
    const auto run = static_cast<int64_t>(std::sqrt(1.0 + static_cast<double>(i) / 8.0));
    ids[i] = kind == Ids::kOne        ? high / 2
             : kind == Ids::kDistinct ? high - 1 - static_cast<int64_t>(i)
             : kind == Ids::kRuns     ? run % high
                                      : static_cast<int64_t>(random() % static_cast<uint64_t>(high));
  }
  if (kind == Ids::kRuns) std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}

/// The inputs of one case and the results of the kernels.
template <class T, class P>
struct EmbeddingRun {
  explicit EmbeddingRun(const EmbeddingCase& test)
      : c(test),
        rows(static_cast<size_t>(test.rows)),
        columns(static_cast<size_t>(test.columns)),
        word_ids(random_ids(rows, test.word_rows, 1, test.words)),
        position_ids(random_ids(rows, test.position_rows, 2)),
        type_ids(random_ids(rows, test.type_rows, 3)),
        keys(rows) {
    for (size_t i = 0; i < rows; ++i) keys[i] = static_cast<int64_t>((i / 3 + 7) << 16 | i % 3);
  }

  void run() {
    const DeviceBuffer<T> word_buffer(word), position_buffer(position), type_buffer(type), dy_buffer(dy),
        y_buffer(rows * columns), dword_buffer(size_of(c.word_rows)), dposition_buffer(size_of(c.position_rows)),
        dtype_buffer(size_of(c.type_rows));
    const DeviceBuffer<P> gamma_buffer(gamma), beta_buffer(beta), dgamma_buffer(columns), dbeta_buffer(columns);
    const DeviceBuffer<int64_t> word_id_buffer(word_ids), position_id_buffer(position_ids), type_id_buffer(type_ids),
        key_buffer(keys);
    const int64_t count = embedding_key_count(c.rows, c.type_rows);
    const DeviceBuffer<float> mean_buffer(rows), rstd_buffer(rows), dsum(rows * columns),
        workspace(static_cast<size_t>(embedding_backward_workspace(c.rows, c.columns))),
        borders(static_cast<size_t>(embedding_scatter_workspace(count, c.columns)));
    const DeviceBuffer<int32_t> unsorted(static_cast<size_t>(count)), sorted(static_cast<size_t>(count));
    const DeviceBuffer<int64_t> order(static_cast<size_t>(count));

    EmbeddingInput<T> input{.rows = c.rows,
                            .columns = c.columns,
                            .ids = {word_id_buffer.data(), position_id_buffer.data(), type_id_buffer.data()},
                            .table_rows = {c.word_rows, c.position_rows, c.type_rows},
                            .word = word_buffer.data() + c.shift,
                            .position = position_buffer.data(),
                            .type = type_buffer.data(),
                            .dropout = dropout(key_buffer.data())};
    const bool fused_type = c.type_rows <= kFusedTypeRows;
    const bool fast = c.columns % 8 == 0 && c.shift == 0 && c.rows > 0, fast_scatter = c.columns % 8 == 0 && c.rows > 0;
    const auto body = [&] {
      const int64_t forward_vectors = vectors_of([&] {
        embedding_forward<T, P>({.input = input,
                                 .gamma = gamma_buffer.data(),
                                 .beta = beta_buffer.data(),
                                 .eps = static_cast<float>(kEps),
                                 .y = y_buffer.data(),
                                 .mean = mean_buffer.data(),
                                 .rstd = rstd_buffer.data()},
                                nullptr);
      });
      CHECK((forward_vectors > 0) == fast);
      for (const auto* table : {&dword_buffer, &dposition_buffer, &dtype_buffer}) {
        std::fill_n(table->data(), table->size(), from_float<T>(0.0F));
      }
      const int64_t backward_vectors = vectors_of([&] {
        embedding_backward<T, P>({.input = input,
                                  .dy = dy_buffer.data(),
                                  .gamma = gamma_buffer.data(),
                                  .mean = mean_buffer.data(),
                                  .rstd = rstd_buffer.data(),
                                  .dsum = dsum.data(),
                                  .dgamma = dgamma_buffer.data(),
                                  .dbeta = dbeta_buffer.data(),
                                  .dtype = fused_type ? dtype_buffer.data() : nullptr,
                                  .workspace = workspace.data()},
                                 nullptr);
      });
      CHECK((backward_vectors > 0) == fast);
      embedding_keys({.rows = c.rows, .ids = input.ids, .table_rows = input.table_rows, .keys = unsorted.data()},
                     nullptr);
      std::iota(order.data(), order.data() + count, int64_t{0});
      std::stable_sort(order.data(), order.data() + count, [&](int64_t a, int64_t b) {
        return unsorted[static_cast<size_t>(a)] < unsorted[static_cast<size_t>(b)];
      });
      for (size_t i = 0; i < sorted.size(); ++i) sorted.data()[i] = unsorted[static_cast<size_t>(order[i])];
      const int64_t scatter_vectors = vectors_of([&] {
        embedding_scatter<T>({.rows = c.rows,
                              .columns = c.columns,
                              .count = count,
                              .table_rows = input.table_rows,
                              .dsum = dsum.data(),
                              .keys = sorted.data(),
                              .order = order.data(),
                              .dword = dword_buffer.data(),
                              .dposition = dposition_buffer.data(),
                              .dtype = fused_type ? nullptr : dtype_buffer.data(),
                              .workspace = borders.data()},
                             nullptr);
      });
      CHECK((scatter_vectors > 0) == fast_scatter);
    };
    run_in_every_order(c.every_order, body, y_buffer, mean_buffer, rstd_buffer, dsum, dword_buffer, dposition_buffer,
                       dtype_buffer, dgamma_buffer, dbeta_buffer, borders, workspace, unsorted);
    y = y_buffer.values(), mean = mean_buffer.values(), rstd = rstd_buffer.values();
    dword = dword_buffer.values(), dposition = dposition_buffer.values(), dtype = dtype_buffer.values();
    dgamma = dgamma_buffer.values(), dbeta = dbeta_buffer.values();
  }

  [[nodiscard]] DropoutMask dropout(const int64_t* row_keys) const {
    if (c.p == 0.0) return {};
    return {.keys = row_keys,
            .seed = kSeed,
            .site = kSite,
            .threshold = dropout_threshold(c.p),
            .scale = static_cast<float>(1.0 / (1.0 - c.p))};
  }

  [[nodiscard]] size_t size_of(int64_t table_rows) const { return static_cast<size_t>(table_rows) * columns; }

  EmbeddingCase c;
  size_t rows, columns;
  std::vector<int64_t> word_ids, position_ids, type_ids, keys;
  std::vector<T> word = random_values<T>(size_of(c.word_rows) + c.shift, 4, 0.25),
                 position = random_values<T>(size_of(c.position_rows), 5),
                 type = random_values<T>(size_of(c.type_rows), 6), dy = random_values<T>(rows * columns, 7);
  std::vector<P> gamma = random_values<P>(columns, 8, 1.0), beta = random_values<P>(columns, 9, 2.0);

  std::vector<T> y, dword, dposition, dtype;
  std::vector<float> mean, rstd;
  std::vector<P> dgamma, dbeta;
};

template <class T, class P>
void check_embedding(const EmbeddingCase& c) {
  CAPTURE(c.rows, c.columns, c.type_rows, static_cast<int>(c.words), c.p, c.shift);
  EmbeddingRun<T, P> r(c);
  const size_t rows = r.rows, columns = r.columns;

  // The twin.
  std::vector<double> y(rows * columns), mean(rows), rstd(rows), dword(r.size_of(c.word_rows)),
      dposition(r.size_of(c.position_rows)), dtype(r.size_of(c.type_rows)), dgamma(columns), dbeta(columns);
  std::vector<bool> dropped(rows * columns);
  const double scale = 1.0 / (1.0 - c.p);
  for (size_t t = 0; t < rows; ++t) {
    std::vector<double> z(columns), xhat(columns), g(columns);
    const size_t w = static_cast<size_t>(r.word_ids[t]) * columns, p = static_cast<size_t>(r.position_ids[t]) * columns,
                 k = static_cast<size_t>(r.type_ids[t]) * columns;
    double sum_g = 0.0, sum_gx = 0.0, squares = 0.0;
    for (size_t i = 0; i < columns; ++i) {
      z[i] = number(r.word[w + i + c.shift]) + number(r.position[p + i]) + number(r.type[k + i]);
      mean[t] += z[i] / static_cast<double>(columns);
    }
    for (const double value : z) squares += (value - mean[t]) * (value - mean[t]);
    rstd[t] = 1.0 / std::sqrt(squares / static_cast<double>(columns) + kEps);
    for (size_t i = 0; i < columns; ++i) {
      const size_t at = t * columns + i;
      dropped[at] = !kept(r.keys[t], static_cast<int64_t>(i), c.p);
      const double factor = dropped[at] ? 0.0 : scale, gradient = number(r.dy[at]) * factor;
      xhat[i] = (z[i] - mean[t]) * rstd[t];
      y[at] = (xhat[i] * number(r.gamma[i]) + number(r.beta[i])) * factor;
      g[i] = gradient * number(r.gamma[i]);
      sum_g += g[i] / static_cast<double>(columns);
      sum_gx += g[i] * xhat[i] / static_cast<double>(columns);
      dgamma[i] += gradient * xhat[i];
      dbeta[i] += gradient;
    }
    for (size_t i = 0; i < columns; ++i) {
      const double dz = rstd[t] * (g[i] - sum_g - xhat[i] * sum_gx);
      dword[w + i] += dz;
      dposition[p + i] += dz;
      dtype[k + i] += dz;
    }
  }

  r.run();
  check_close("y", r.y, y);
  check_close("mean", r.mean, mean);
  check_close("rstd", r.rstd, rstd);
  check_close("dgamma", r.dgamma, dgamma, kSums);
  check_close("dbeta", r.dbeta, dbeta, kSums);
  check_close("dword", r.dword, dword, kSums);
  check_close("dposition", r.dposition, dposition, kSums);
  check_close("dtype", r.dtype, dtype, kSums);
  size_t different = 0;  // from the mask of the scalar rule
  for (size_t i = 0; i < y.size(); ++i) different += (to_float(r.y[i]) == 0.0F) != dropped[i] ? 1 : 0;
  CHECK(different == 0);
}

TEMPLATE_TEST_CASE("Embedding kernels equal their scalar twin", "[unit][cuda_emulator]", (std::pair<float, float>),
                   (std::pair<c10::Half, c10::Half>), (std::pair<c10::Half, float>),
                   (std::pair<c10::BFloat16, c10::BFloat16>), (std::pair<c10::BFloat16, float>)) {
  using T = typename TestType::first_type;
  using P = typename TestType::second_type;
  // Vectors in registers, one to four passes, with and without a tail.
  for (const int64_t columns : {8, 128, 256, 312, 384, 512, 776, 768, 1024}) {
    check_embedding<T, P>({.rows = 5, .columns = columns});
  }
  check_embedding<T, P>({.rows = 4, .columns = 264, .p = 0.0});
  // Vectors in a loop: forward above 1024, backward above 2048, the scatter's second block of columns above 1024.
  check_embedding<T, P>({.rows = 3, .columns = 1032});
  check_embedding<T, P>({.rows = 2, .columns = 2056});
  // One by one.
  for (const int64_t columns : {2, 7, 33, 100, 257}) check_embedding<T, P>({.rows = 3, .columns = columns});
  check_embedding<T, P>({.rows = 3, .columns = 24, .shift = 1});
}

TEST_CASE("Embedding kernels add up every pattern of equal ids", "[unit][cuda_emulator]") {
  for (const int64_t columns : {8, 9}) {
    for (const int64_t rows : {1, 31, 32, 33, 64}) {
      check_embedding<float, float>({.rows = rows, .columns = columns, .words = Ids::kOne});
      check_embedding<float, float>({.rows = rows, .columns = columns, .word_rows = rows, .words = Ids::kDistinct});
    }
    // Runs that cross zero, one and many borders of chunks; more rows than a block loads at a time.
    check_embedding<float, float>({.rows = 460, .columns = columns, .words = Ids::kRuns, .every_order = false});
    check_embedding<float, float>({.rows = 460, .columns = columns, .words = Ids::kOne, .every_order = false});
    check_embedding<c10::BFloat16, float>({.rows = 64, .columns = columns, .words = Ids::kRuns});
    // One type, and more types than are summed with dgamma.
    for (const int64_t type_rows : {1, 3, 40}) {
      check_embedding<float, float>({.rows = 64, .columns = columns, .type_rows = type_rows});
      check_embedding<c10::Half, float>({.rows = 33, .columns = columns, .type_rows = type_rows, .words = Ids::kOne});
    }
  }
}

TEST_CASE("Embedding kernels walk down more rows than they have blocks", "[unit][cuda_emulator]") {
  // Backward has 264 blocks of 256 threads: two of them have three rows.
  for (const double p : {0.0, 0.1}) {
    check_embedding<c10::Half, float>({.rows = 530, .columns = 1800, .p = p, .every_order = false});
    check_embedding<float, float>({.rows = 530, .columns = 1801, .p = p, .every_order = false});
  }
}

TEST_CASE("Embedding kernels take no rows", "[unit][cuda_emulator]") {
  check_embedding<float, float>({.rows = 0, .columns = 16});
  check_embedding<c10::Half, float>({.rows = 0, .columns = 7, .type_rows = 3});
}

TEST_CASE("Embedding kernels make a row of NaN of an id outside of its table, and touch nothing else",
          "[unit][cuda_emulator]") {
  for (const int64_t columns : {16, 7}) {
    for (const int64_t type_rows : {2, 3}) {
      CAPTURE(columns, type_rows);
      EmbeddingRun<float, float> r({.rows = 9, .columns = columns, .type_rows = type_rows, .p = 0.1});
      const std::vector<size_t> outside = {1, 2, 4, 5, 7};
      r.word_ids[1] = r.c.word_rows;
      r.word_ids[2] = -1;
      r.position_ids[4] = int64_t{1} << 40;
      r.position_ids[5] = -(int64_t{1} << 32);  // 0 in its low bits
      r.type_ids[7] = type_rows;
      r.run();
      const auto is_outside = [&](size_t t) { return std::find(outside.begin(), outside.end(), t) != outside.end(); };
      for (size_t i = 0; i < r.y.size(); ++i) CHECK(std::isnan(r.y[i]) == is_outside(i / r.columns));
      for (const float value : r.dgamma) CHECK(std::isnan(value));
      // The rows of the other ids of such a token get its NaN; all others are finite.
      const auto check_table = [&](const std::vector<float>& gradient, const std::vector<int64_t>& ids) {
        for (size_t i = 0; i < gradient.size(); ++i) {
          bool spoilt = false;
          for (const size_t t : outside) spoilt |= ids[t] == static_cast<int64_t>(i / r.columns);
          CHECK(std::isnan(gradient[i]) == spoilt);
        }
      };
      check_table(r.dword, r.word_ids);
      check_table(r.dposition, r.position_ids);
      if (type_rows > kFusedTypeRows) check_table(r.dtype, r.type_ids);
    }
  }
}

}  // namespace
}  // namespace bert::kernels
