#include "cuda_ext/dispatch/embedding.h"

#include <ATen/ATen.h>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/dispatch/layer_norm.h"
#include "cuda_ext/ops.h"

namespace bert::composite {

namespace {

Tensor embedding_sum(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                     const Tensor& word, const Tensor& position, const Tensor& type) {
  const auto accumulate = accumulation_type(word);
  return at::embedding(word, input_ids).to(accumulate) + at::embedding(position, position_ids).to(accumulate) +
         at::embedding(type, token_type_ids).to(accumulate);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys) {
  const Tensor sum = embedding_sum(input_ids, position_ids, token_type_ids, word, position, type);
  auto [y, mean, rstd] = layer_norm(sum, gamma, beta, eps);
  return {masked(y, p, seed, site, keys).to(word.scalar_type()), mean, rstd, nothing_kept(word)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& /*kept*/) {
  const Tensor sum = embedding_sum(input_ids, position_ids, token_type_ids, word, position, type);
  auto [dsum, dgamma, dbeta] =
      layer_norm_backward(masked(grad.to(sum.scalar_type()), p, seed, site, keys), sum, mean, rstd, gamma);
  const auto scatter = [&dsum = dsum](const Tensor& ids, const Tensor& table) {
    return at::embedding_dense_backward(dsum, ids, table.size(0), /*padding_idx=*/-1, false).to(table.scalar_type());
  };
  return {scatter(input_ids, word), scatter(position_ids, position), scatter(token_type_ids, type), dgamma, dbeta};
}

}  // namespace bert::composite

namespace bert::checks {

namespace {

struct Embedding {
  const Tensor &input_ids, &position_ids, &token_type_ids, &word, &position, &type;
};

void check_embedding(const char* op, const Embedding& in, const Tensor& gamma) {
  check(op, "word", in.word, {-1, -1}, in.word);
  const int64_t hidden = in.word.size(1);
  check(op, "position", in.position, {-1, hidden}, in.word);
  check(op, "type", in.type, {-1, hidden}, in.word);
  check(op, "gamma", gamma, {hidden}, in.word);
  check_integers(op, "input_ids", in.input_ids, -1, at::kLong, in.word);
  check_integers(op, "position_ids", in.position_ids, in.input_ids.size(0), at::kLong, in.word);
  check_integers(op, "token_type_ids", in.token_type_ids, in.input_ids.size(0), at::kLong, in.word);
  check_range(op, "input_ids", in.input_ids, in.word.size(0));
  check_range(op, "position_ids", in.position_ids, in.position.size(0));
  check_range(op, "token_type_ids", in.token_type_ids, in.type.size(0));
}

}  // namespace

void embedding_layer_norm_dropout(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
                                  const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& gamma,
                                  const Tensor& beta, double eps, double p, int64_t /*seed*/, int64_t site,
                                  const OptionalTensor& keys) {
  constexpr auto kOp = "embedding_layer_norm_dropout";
  check_embedding(kOp, {input_ids, position_ids, token_type_ids, word, position, type}, gamma);
  check(kOp, "beta", beta, {word.size(1)}, word);
  check_eps(kOp, eps);
  check_keys(kOp, p, site, keys, input_ids.size(0), word);
}

void embedding_layer_norm_dropout_backward(const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids,
                                           const Tensor& token_type_ids, const Tensor& word, const Tensor& position,
                                           const Tensor& type, const Tensor& mean, const Tensor& rstd,
                                           const Tensor& gamma, double p, int64_t /*seed*/, int64_t site,
                                           const OptionalTensor& keys, const Tensor& kept) {
  constexpr auto kOp = "embedding_layer_norm_dropout_backward";
  check_embedding(kOp, {input_ids, position_ids, token_type_ids, word, position, type}, gamma);
  const int64_t tokens = input_ids.size(0), hidden = word.size(1);
  check(kOp, "grad", grad, {tokens, hidden}, word);
  check_statistic(kOp, "mean", mean, {tokens}, word);
  check_statistic(kOp, "rstd", rstd, {tokens}, word);
  check_keys(kOp, p, site, keys, tokens, word);
  check_kept(kOp, kept, tokens, hidden, word);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct EmbeddingLayerNormDropout : Differentiable<EmbeddingLayerNormDropout> {
  static variable_list forward(AutogradContext* ctx, const Tensor& input_ids, const Tensor& position_ids,
                               const Tensor& token_type_ids, const Tensor& word, const Tensor& position,
                               const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
                               int64_t seed, int64_t site, const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, mean, rstd, kept] = dispatch::embedding_layer_norm_dropout(
        input_ids, position_ids, token_type_ids, word, position, type, gamma, beta, eps, p, seed, site, keys);
    ctx->save_for_backward({input_ids, position_ids, token_type_ids, word, position, type, mean, rstd, gamma,
                            keys.value_or(Tensor()), kept});
    ctx->mark_non_differentiable({mean, rstd, kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, mean, rstd, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    auto [dword, dposition, dtype, dgamma, dbeta] = dispatch::embedding_layer_norm_dropout_backward(
        grad, saved[0], saved[1], saved[2], saved[3], saved[4], saved[5], saved[6], saved[7], saved[8], drop.p,
        drop.seed, drop.site, optional(saved[9]), saved[10]);
    return {Tensor(), Tensor(), Tensor(), dword,    dposition, dtype,   dgamma,
            dbeta,    Tensor(), Tensor(), Tensor(), Tensor(),  Tensor()};
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor> cast_embedding_layer_norm_dropout(
    const Autocast& cast, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps,
    double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  auto [y, mean, rstd, kept] = dispatch::embedding_layer_norm_dropout(
      input_ids, position_ids, token_type_ids, word, position, type, gamma, beta, eps, p, seed, site, keys);
  return {cast.low(y), mean, rstd, kept};
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<embedding_layer_norm_dropout>(
      m,
      "embedding_layer_norm_dropout(Tensor input_ids, Tensor position_ids, Tensor token_type_ids, Tensor word, Tensor "
      "position, Tensor type, Tensor gamma, Tensor beta, float eps, float p, int seed, int site, Tensor? keys) -> "
      "(Tensor y, Tensor mean, Tensor rstd, Tensor kept)");
  define<embedding_layer_norm_dropout_backward>(
      m,
      "embedding_layer_norm_dropout_backward(Tensor grad, Tensor input_ids, Tensor position_ids, Tensor "
      "token_type_ids, Tensor word, Tensor position, Tensor type, Tensor mean, Tensor rstd, Tensor gamma, float p, int "
      "seed, int site, Tensor? keys, Tensor kept) -> (Tensor dword, Tensor dposition, Tensor dtype, Tensor dgamma, "
      "Tensor dbeta)");
  differentiate<embedding_layer_norm_dropout, EmbeddingLayerNormDropout>(m);
  autocast<embedding_layer_norm_dropout, cast_embedding_layer_norm_dropout>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor embedding_layer_norm_dropout(const at::Tensor& input_ids, const at::Tensor& position_ids,
                                        const at::Tensor& token_type_ids, const EmbeddingTables& tables,
                                        const at::Tensor& gamma, const at::Tensor& beta, double eps,
                                        const Dropout& dropout) {
  return std::get<0>(dispatch::embedding_layer_norm_dropout(
      input_ids, position_ids, token_type_ids, tables.word, tables.position, tables.type, gamma, beta, eps, dropout.p,
      dropout.seed, dropout.site, dispatch::optional(dropout.keys)));
}

}  // namespace bert::ops
