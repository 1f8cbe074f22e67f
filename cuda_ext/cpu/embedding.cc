#include "cuda_ext/dispatch/embedding.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "cuda_ext/cpu/layer_norm.h"

namespace bert::cpu {
namespace {

simd::LayerNorm embedding_arguments(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                                    const Tensor& word, const Tensor& position, const Tensor& type,
                                    const Tensor& gamma) {
  simd::LayerNorm arguments{};
  arguments.input = simd::NormInput::kEmbedding;
  arguments.type = type_of(word);
  arguments.columns = word.size(1);
  const Tensor tables[] = {word, position, type}, ids[] = {input_ids, position_ids, token_type_ids};
  for (size_t i = 0; i < 3; ++i) {
    arguments.tables[i] = tables[i].const_data_ptr();
    arguments.ids[i] = ids[i].const_data_ptr<int64_t>();
  }
  arguments.gamma = gamma.const_data_ptr<float>();
  return arguments;
}

bool tables_have_kernel(const Tensor& word, const Tensor& position, const Tensor& type) {
  return has_kernel(word) && position.scalar_type() == word.scalar_type() && type.scalar_type() == word.scalar_type();
}

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (!tables_have_kernel(word, position, type)) {
    return composite::embedding_layer_norm_dropout(input_ids, position_ids, token_type_ids, word, position, type, gamma,
                                                   beta, eps, p, seed, site, keys);
  }
  const Tensor g = as_float(gamma), b = as_float(beta);
  Tensor y = at::empty({input_ids.size(0), word.size(1)}, word.options());
  Statistics statistics = empty_statistics(input_ids.size(0), word);
  auto arguments = embedding_arguments(input_ids, position_ids, token_type_ids, word, position, type, g);
  const Tensor kept = room_for_mask(p, input_ids.size(0), arguments.columns, word);
  arguments.mask = keeping_mask(mask_of(p, seed, site, keys), kept);
  normalise(arguments, input_ids.size(0), b, eps, y, statistics);
  return {y, statistics.mean, statistics.rstd, kept};
}

/// Tokens sorted by id; those of one id stay in their order.
class SortedTokens {
 public:
  /// `ids` in [0, rows).
  void build(const Tensor& ids, int64_t rows) {
    const auto tokens = static_cast<size_t>(ids.size(0));
    const int64_t* id = ids.const_data_ptr<int64_t>();
    rows_ = rows;
    starts_.assign(static_cast<size_t>(rows) + 2, 0);
    tokens_.resize(tokens);
    // The start of each row is stored one place later. Placing the row's tokens moves it to the start of the next row.
    int64_t* const next = starts_.data() + 1;
    for (size_t t = 0; t < tokens; ++t) ++next[id[t] + 1];
    for (size_t row = 1; row < starts_.size(); ++row) starts_[row] += starts_[row - 1];
    for (size_t t = 0; t < tokens; ++t) tokens_[static_cast<size_t>(next[id[t]]++)] = static_cast<int64_t>(t);
  }
  [[nodiscard]] const int64_t* tokens() const { return tokens_.data(); }
  [[nodiscard]] const int64_t* starts() const { return starts_.data(); }

  /// Work in units: one for each written row and one for each read token.
  [[nodiscard]] int64_t work() const { return rows_ + static_cast<int64_t>(tokens_.size()); }
  /// The first row that begins at this unit or after it.
  [[nodiscard]] int64_t row_at(int64_t unit) const {
    int64_t low = 0, high = rows_;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (middle + starts_[static_cast<size_t>(middle)] < unit) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

 private:
  int64_t rows_ = 0;
  std::vector<int64_t> tokens_, starts_;
};

/// Adds the rows of `gradient` into a table by id: in the order of the tokens, in fp32, rounded once. Threads share the
/// rows of a large table, which is written past the caches. They share the columns of a small table, whose rows may be
/// few.
Tensor scatter(const Tensor& gradient, const Tensor& ids, const Tensor& table) {
  constexpr int64_t kColumns = 64;          // least columns of a thread: a few cache lines
  static thread_local SortedTokens sorted;  // kept between calls
  const SortedTokens& tokens = sorted;      // that of the calling thread, for all threads
  const int64_t columns = table.size(1);
  sorted.build(ids, table.size(0));
  Tensor result = at::empty_like(table);
  const simd::EmbeddingScatter arguments{.type = type_of(table),
                                         .columns = columns,
                                         .first_column = 0,
                                         .last_column = columns,
                                         .gradient = gradient.const_data_ptr<float>(),
                                         .tokens = tokens.tokens(),
                                         .starts = tokens.starts(),
                                         .table = result.mutable_data_ptr(),
                                         .scratch = nullptr,
                                         .stream = streams(result)};
  const auto run = [&](simd::EmbeddingScatter mine, int64_t begin, int64_t end) {
    mine.scratch = scratch(mine.last_column - mine.first_column);
    simd::kernels().embedding_scatter(mine, begin, end);
  };
  if (arguments.stream) {
    at::parallel_for(0, tokens.work(), grain(columns * 4),
                     [&](int64_t begin, int64_t end) { run(arguments, tokens.row_at(begin), tokens.row_at(end)); });
  } else {
    const int64_t pieces = (columns + kColumns - 1) / kColumns;
    at::parallel_for(0, pieces, grain(tokens.work() * kColumns * 4), [&](int64_t begin, int64_t end) {
      simd::EmbeddingScatter mine = arguments;
      mine.first_column = begin * kColumns;
      mine.last_column = std::min(columns, end * kColumns);
      run(mine, 0, table.size(0));
    });
  }
  return result;
}

/// Largest number of rows of a token-type table whose gradient is summed with gamma's and beta's, without another read
/// of all rows.
constexpr int64_t kSummedRows = 4;

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& kept) {
  if (!tables_have_kernel(word, position, type) || grad.scalar_type() != word.scalar_type()) {
    return composite::embedding_layer_norm_dropout_backward(grad, input_ids, position_ids, token_type_ids, word,
                                                            position, type, mean, rstd, gamma, p, seed, site, keys,
                                                            kept);
  }
  const Tensor g = as_float(gamma);
  Tensor dsum = at::empty(grad.sizes(), grad.options().dtype(at::kFloat));
  auto arguments = embedding_arguments(input_ids, position_ids, token_type_ids, word, position, type, g);
  arguments.mask = kept_mask(mask_of(p, seed, site, keys), kept);
  arguments.dresidual = dsum.mutable_data_ptr();
  arguments.summed_rows = type.size(0) <= kSummedRows ? type.size(0) : 0;
  const Tensor sums = normalise_backward(arguments, input_ids.size(0), 2 + arguments.summed_rows, grad, mean, rstd)
                          .view({2 + arguments.summed_rows, arguments.columns});
  const Tensor dtype =
      arguments.summed_rows == 0 ? scatter(dsum, token_type_ids, type) : sums.slice(0, 2).to(type.scalar_type());
  return {scatter(dsum, input_ids, word), scatter(dsum, position_ids, position), dtype, sums[0].to(gamma.scalar_type()),
          sums[1].to(gamma.scalar_type())};
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("embedding_layer_norm_dropout", bert::cpu::embedding_layer_norm_dropout);
  m.impl("embedding_layer_norm_dropout_backward", bert::cpu::embedding_layer_norm_dropout_backward);
}
