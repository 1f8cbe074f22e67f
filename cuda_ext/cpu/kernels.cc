// The operators on the CPU: allocation and threads here, the loops in cuda_ext/simd/vectors.inc. Rows are cut into pieces by their
// number alone, and sums over rows are added piece by piece in order: the result does not depend on the number of
// threads.
#include "cuda_ext/cpu/kernels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <memory>
#include <vector>

#include "cuda_ext/dispatch/composite.h"
#include "cuda_ext/scalar/philox.h"

namespace bert::cpu {

bool has_kernel(const Tensor& x) {
  return x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

simd::Type type_of(const Tensor& x) {
  return x.scalar_type() == at::kFloat      ? simd::Type::kFloat
         : x.scalar_type() == at::kBFloat16 ? simd::Type::kBFloat16
                                            : simd::Type::kHalf;
}

simd::Mask mask_of(double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return {.seed = static_cast<uint64_t>(seed),
          .site = static_cast<uint32_t>(site),
          .threshold = p > 0.0 ? dropout_threshold(p) : 0,
          .keys = p > 0.0 ? keys->const_data_ptr<int64_t>() : nullptr,
          .scale = static_cast<float>(1.0 / (1.0 - p))};
}

bool streams(const Tensor& result) {
  const auto row_bytes = static_cast<size_t>(result.size(-1)) * result.itemsize();
  return result.nbytes() >= kStreamBytes && row_bytes % simd::kStreamAlign == 0 &&
         reinterpret_cast<uintptr_t>(result.const_data_ptr()) % simd::kStreamAlign == 0;
}

float* scratch(int64_t floats) {
  constexpr size_t kAlign = 64;
  static thread_local std::vector<float> memory;
  const size_t needed = static_cast<size_t>(floats) + kAlign / sizeof(float);
  if (memory.size() < needed) memory.resize(needed);
  void* aligned = memory.data();
  size_t space = memory.size() * sizeof(float);
  return static_cast<float*>(std::align(kAlign, static_cast<size_t>(floats) * sizeof(float), aligned, space));
}

namespace {

/// Parameters are small: their kernels take fp32.
Tensor as_float(const Tensor& parameter) { return parameter.to(at::kFloat); }

constexpr int64_t kPiece = 64;  // rows that are summed before the sums are added

/// f(piece, first row, last row) for pieces of kPiece rows.
template <class F>
void for_pieces(int64_t rows, int64_t row_bytes, F f) {
  const int64_t pieces = (rows + kPiece - 1) / kPiece;
  at::parallel_for(0, pieces, grain(row_bytes * kPiece), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) f(piece, piece * kPiece, std::min(rows, (piece + 1) * kPiece));
  });
}

/// Sums over rows, one row of `columns` for each piece; total() adds them in order.
class Partials {
 public:
  Partials(int64_t rows, int64_t columns, const Tensor& like)
      : sums_(at::empty({(rows + kPiece - 1) / kPiece, columns}, like.options().dtype(at::kFloat))) {}
  float* piece(int64_t index) { return sums_.mutable_data_ptr<float>() + index * sums_.size(1); }
  [[nodiscard]] Tensor total() const {
    const int64_t pieces = sums_.size(0), columns = sums_.size(1);
    Tensor result = at::zeros({columns}, sums_.options());
    const float* from = sums_.const_data_ptr<float>();
    float* to = result.mutable_data_ptr<float>();
    at::parallel_for(0, columns, grain(pieces * 4), [&](int64_t begin, int64_t end) {
      for (int64_t i = 0; i < pieces; ++i) {
        for (int64_t c = begin; c < end; ++c) to[c] += from[i * columns + c];
      }
    });
    return result;
  }

 private:
  Tensor sums_;
};

// Note [Kept masks]
// Philox takes longer than the rest of a backward that drops: 50 vector instructions for 32 columns. So the forward
// keeps its mask, one bit an element, and the backward reads it; without it, as after a forward elsewhere, the backward
// draws the same bits again.

/// Where a forward keeps its mask; empty without dropout.
Tensor room_for_mask(double p, int64_t rows, int64_t columns, const Tensor& like) {
  if (p == 0.0) return composite::nothing_kept(like);
  return at::empty({rows, simd::kept_bytes(columns)}, like.options().dtype(at::kByte));
}
simd::Mask keeping_mask(simd::Mask mask, const Tensor& kept) {
  if (kept.numel() > 0) mask.kept = kept.mutable_data_ptr<uint8_t>();
  return mask;
}
simd::Mask kept_mask(simd::Mask mask, const Tensor& kept) {
  mask = keeping_mask(mask, kept);
  mask.drawn = mask.kept != nullptr;
  return mask;
}

Tensor bias_gelu(const Tensor& x, const Tensor& bias, bool tanh) {
  if (!has_kernel(x)) return composite::bias_gelu(x, bias, tanh);
  const Tensor b = as_float(bias);
  Tensor y = at::empty_like(x);
  const simd::BiasGelu arguments{.type = type_of(x),
                                 .tanh = tanh,
                                 .stream = streams(y),
                                 .columns = x.size(1),
                                 .x = x.const_data_ptr(),
                                 .grad = nullptr,
                                 .bias = b.const_data_ptr<float>(),
                                 .out = y.mutable_data_ptr(),
                                 .dbias = nullptr};
  at::parallel_for(0, x.size(0), grain(x.size(1) * 4),
                   [&](int64_t begin, int64_t end) { simd::kernels().bias_gelu(arguments, begin, end); });
  return y;
}

std::tuple<Tensor, Tensor> bias_gelu_backward(const Tensor& grad, const Tensor& x, const Tensor& bias, bool tanh) {
  if (!has_kernel(x) || grad.scalar_type() != x.scalar_type())
    return composite::bias_gelu_backward(grad, x, bias, tanh);
  const Tensor b = as_float(bias);
  Tensor dx = at::empty_like(x);
  const bool stream = streams(dx);
  Partials partials(x.size(0), x.size(1), x);
  for_pieces(x.size(0), x.size(1) * 4, [&](int64_t piece, int64_t begin, int64_t end) {
    const simd::BiasGelu arguments{.type = type_of(x),
                                   .tanh = tanh,
                                   .stream = stream,
                                   .columns = x.size(1),
                                   .x = x.const_data_ptr(),
                                   .grad = grad.const_data_ptr(),
                                   .bias = b.const_data_ptr<float>(),
                                   .out = dx.mutable_data_ptr(),
                                   .dbias = partials.piece(piece)};
    simd::kernels().bias_gelu_backward(arguments, begin, end);
  });
  return {dx, partials.total().to(bias.scalar_type())};
}

// ---- LayerNorm ----

struct Statistics {
  Tensor mean, rstd;
};
Statistics empty_statistics(int64_t rows, const Tensor& like) {
  const auto options = like.options().dtype(at::kFloat);
  return {at::empty({rows}, options), at::empty({rows}, options)};
}

/// What forward and backward are told alike of LayerNorm(x). Parameters are fp32.
simd::LayerNorm plain_arguments(const Tensor& x, const Tensor& gamma) {
  simd::LayerNorm arguments{};
  arguments.input = simd::NormInput::kPlain;
  arguments.type = type_of(x);
  arguments.columns = x.size(1);
  arguments.x = x.const_data_ptr();
  arguments.gamma = gamma.const_data_ptr<float>();
  return arguments;
}

/// The same of LayerNorm(dropout(x + bias) + residual), but for the mask.
simd::LayerNorm residual_arguments(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& gamma) {
  simd::LayerNorm arguments = plain_arguments(x, gamma);
  arguments.input = simd::NormInput::kResidual;
  arguments.residual = residual.const_data_ptr();
  arguments.bias = bias.const_data_ptr<float>();
  return arguments;
}

void normalise(simd::LayerNorm arguments, int64_t rows, const Tensor& beta, double eps, Tensor& y,
               Statistics& statistics) {
  arguments.beta = beta.const_data_ptr<float>();
  arguments.eps = static_cast<float>(eps);
  arguments.y = y.mutable_data_ptr();
  arguments.stream = streams(y);
  arguments.mean = statistics.mean.mutable_data_ptr<float>();
  arguments.rstd = statistics.rstd.mutable_data_ptr<float>();
  at::parallel_for(0, rows, grain(arguments.columns * 8), [&](int64_t begin, int64_t end) {
    simd::LayerNorm mine = arguments;
    mine.scratch = scratch(simd::norm_scratch(arguments.columns));
    simd::kernels().layer_norm(mine, begin, end);
  });
}

/// Returns dgamma | dbeta | dbias, [sums * columns].
Tensor normalise_backward(simd::LayerNorm arguments, int64_t rows, int64_t sums, const Tensor& grad, const Tensor& mean,
                          const Tensor& rstd) {
  arguments.grad = grad.const_data_ptr();
  arguments.mean = const_cast<float*>(mean.const_data_ptr<float>());  // read only in backward
  arguments.rstd = const_cast<float*>(rstd.const_data_ptr<float>());
  Partials partials(rows, sums * arguments.columns, grad);
  for_pieces(rows, arguments.columns * 16, [&](int64_t piece, int64_t begin, int64_t end) {
    simd::LayerNorm mine = arguments;
    mine.partial = partials.piece(piece);
    mine.scratch = scratch(simd::norm_scratch(arguments.columns));
    simd::kernels().layer_norm_backward(mine, begin, end);
  });
  return partials.total();
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps) {
  if (!has_kernel(x)) return composite::layer_norm(x, gamma, beta, eps);
  const Tensor g = as_float(gamma), b = as_float(beta);
  Tensor y = at::empty_like(x);
  Statistics statistics = empty_statistics(x.size(0), x);
  simd::LayerNorm arguments = plain_arguments(x, g);
  normalise(arguments, x.size(0), b, eps, y, statistics);
  return {y, statistics.mean, statistics.rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& x, const Tensor& mean,
                                                       const Tensor& rstd, const Tensor& gamma) {
  if (!has_kernel(x) || grad.scalar_type() != x.scalar_type())
    return composite::layer_norm_backward(grad, x, mean, rstd, gamma);
  const Tensor g = as_float(gamma);
  Tensor dx = at::empty_like(x);
  simd::LayerNorm arguments = plain_arguments(x, g);
  arguments.dx = dx.mutable_data_ptr();
  arguments.stream = streams(dx);
  const auto sums = normalise_backward(arguments, x.size(0), 2, grad, mean, rstd).to(gamma.scalar_type()).chunk(2);
  return {dx, sums[0], sums[1]};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm(const Tensor& x, const Tensor& bias,
                                                                            const Tensor& residual, const Tensor& gamma,
                                                                            const Tensor& beta, double eps, double p,
                                                                            int64_t seed, int64_t site,
                                                                            const OptionalTensor& keys) {
  if (!has_kernel(x) || residual.scalar_type() != x.scalar_type()) {
    return composite::bias_dropout_residual_layer_norm(x, bias, residual, gamma, beta, eps, p, seed, site, keys);
  }
  const Tensor c = as_float(bias), g = as_float(gamma), b = as_float(beta);
  Tensor y = at::empty_like(x);
  Statistics statistics = empty_statistics(x.size(0), x);
  simd::LayerNorm arguments = residual_arguments(x, c, residual, g);
  const Tensor kept = room_for_mask(p, x.size(0), arguments.columns, x);
  arguments.mask = keeping_mask(mask_of(p, seed, site, keys), kept);
  normalise(arguments, x.size(0), b, eps, y, statistics);
  return {y, statistics.mean, statistics.rstd, kept};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> bias_dropout_residual_layer_norm_backward(
    const Tensor& grad, const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& mean,
    const Tensor& rstd, const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
    const Tensor& kept) {
  if (!has_kernel(x) || residual.scalar_type() != x.scalar_type() || grad.scalar_type() != x.scalar_type()) {
    return composite::bias_dropout_residual_layer_norm_backward(grad, x, bias, residual, mean, rstd, gamma, p, seed,
                                                                site, keys, kept);
  }
  const Tensor c = as_float(bias), g = as_float(gamma);
  Tensor dx = at::empty_like(x), dresidual = at::empty_like(x);
  simd::LayerNorm arguments = residual_arguments(x, c, residual, g);
  arguments.mask = kept_mask(mask_of(p, seed, site, keys), kept);
  arguments.dx = dx.mutable_data_ptr();
  arguments.stream = streams(dx);
  arguments.dresidual = dresidual.mutable_data_ptr();
  const auto sums = normalise_backward(arguments, x.size(0), 3, grad, mean, rstd).chunk(3);
  return {dx, sums[2].to(bias.scalar_type()), dresidual, sums[0].to(gamma.scalar_type()),
          sums[1].to(gamma.scalar_type())};
}

// ---- embeddings ----

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
    // Each row's start stands one place further on, until placing its tokens has moved it to the next row's start.
    int64_t* const next = starts_.data() + 1;
    for (size_t t = 0; t < tokens; ++t) ++next[id[t] + 1];
    for (size_t row = 1; row < starts_.size(); ++row) starts_[row] += starts_[row - 1];
    for (size_t t = 0; t < tokens; ++t) tokens_[static_cast<size_t>(next[id[t]]++)] = static_cast<int64_t>(t);
  }
  [[nodiscard]] const int64_t* tokens() const { return tokens_.data(); }
  [[nodiscard]] const int64_t* starts() const { return starts_.data(); }

  /// Work in units: one for each row, which is written, and for each token, which is read.
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

/// The rows of `gradient` added into a table by id: each id's in the order of the tokens, in fp32, rounded once.
/// Threads share the rows of a large table, which is written past the caches, and the columns of another, whose rows
/// may be few.
Tensor scatter(const Tensor& gradient, const Tensor& ids, const Tensor& table) {
  constexpr int64_t kColumns = 64;          // of a thread at least: a few cache lines
  static thread_local SortedTokens sorted;  // kept between calls
  const SortedTokens& tokens = sorted;      // the caller's, in all threads
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

/// A table of token types up to this size is summed with gamma and beta, without another read of all rows.
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

// ---- dropout ----

Tensor drop(const Tensor& x, const simd::Mask& mask) {
  Tensor y = at::empty_like(x);
  const simd::Dropout arguments{.type = type_of(x),
                                .columns = x.numel() / x.size(0),
                                .x = x.const_data_ptr(),
                                .y = y.mutable_data_ptr(),
                                .mask = mask,
                                .scratch = nullptr,
                                .stream = streams(y)};
  at::parallel_for(0, x.size(0), grain(arguments.columns * 4), [&](int64_t begin, int64_t end) {
    simd::Dropout mine = arguments;
    mine.scratch = scratch(simd::scratch_columns(arguments.columns));
    simd::kernels().dropout(mine, begin, end);
  });
  return y;
}

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  if (!has_kernel(x) || p == 0.0 || x.numel() == 0) return composite::dropout(x, p, seed, site, keys);
  const Tensor kept = room_for_mask(p, x.size(0), x.numel() / x.size(0), x);
  return {drop(x, keeping_mask(mask_of(p, seed, site, keys), kept)), kept};
}

Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& kept) {
  if (!has_kernel(grad) || p == 0.0 || grad.numel() == 0)
    return composite::dropout_backward(grad, p, seed, site, keys, kept);
  return drop(grad, kept_mask(mask_of(p, seed, site, keys), kept));
}

Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p) {
  const Tensor ones = at::ones({keys.size(0), columns}, keys.options().dtype(at::kFloat));
  return dropout_backward(ones, p, seed, site, keys, composite::nothing_kept(keys)).ne(0);
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  namespace cpu = bert::cpu;
  m.impl("linear", cpu::linear);
  m.impl("linear_backward", cpu::linear_backward);
  m.impl("bias_gelu", cpu::bias_gelu);
  m.impl("bias_gelu_backward", cpu::bias_gelu_backward);
  m.impl("layer_norm", cpu::layer_norm);
  m.impl("layer_norm_backward", cpu::layer_norm_backward);
  m.impl("bias_dropout_residual_layer_norm", cpu::bias_dropout_residual_layer_norm);
  m.impl("bias_dropout_residual_layer_norm_backward", cpu::bias_dropout_residual_layer_norm_backward);
  m.impl("embedding_layer_norm_dropout", cpu::embedding_layer_norm_dropout);
  m.impl("embedding_layer_norm_dropout_backward", cpu::embedding_layer_norm_dropout_backward);
  m.impl("attention", cpu::attention);
  m.impl("attention_backward", cpu::attention_backward);
  m.impl("masked_softmax_dropout", cpu::masked_softmax_dropout);
  m.impl("masked_softmax_dropout_backward", cpu::masked_softmax_dropout_backward);
  m.impl("dropout", cpu::dropout);
  m.impl("dropout_backward", cpu::dropout_backward);
  m.impl("dropout_mask", cpu::dropout_mask);
  m.impl("cross_entropy", cpu::cross_entropy);
  m.impl("cross_entropy_backward_", cpu::cross_entropy_backward_);
}
