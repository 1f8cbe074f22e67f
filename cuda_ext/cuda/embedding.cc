#include "cuda_ext/dispatch/embedding.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/zeros_like.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <limits>

#include "cuda_ext/cuda/tensors.h"
#include "cuda_ext/kernels/embedding.h"
#include "cuda_ext/kernels/launch.h"

namespace bert::cuda {
namespace {

/// The first arguments of both operators.
struct Embedding {
  Tensor input_ids, position_ids, token_type_ids, word, position, type;
  kernels::DropoutMask dropout;

  [[nodiscard]] kernels::TokenIds ids() const {
    return {.word = in<int64_t>(input_ids), .position = in<int64_t>(position_ids), .type = in<int64_t>(token_type_ids)};
  }
  [[nodiscard]] kernels::TableRows table_rows() const {
    return {.word = word.size(0), .position = position.size(0), .type = type.size(0)};
  }
  template <class T>
  [[nodiscard]] kernels::EmbeddingInput<T> input() const {
    return {.rows = input_ids.size(0),
            .columns = word.size(1),
            .ids = ids(),
            .table_rows = table_rows(),
            .word = in<T>(word),
            .position = in<T>(position),
            .type = in<T>(type),
            .dropout = dropout};
  }
  /// True if the tables have one dtype, and 32 bits can number all their rows.
  [[nodiscard]] bool has_kernel() const {
    return same_type(word, {&position, &type}) &&
           word.size(0) + position.size(0) + type.size(0) < std::numeric_limits<int32_t>::max();
  }
};

std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout(
    const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids, const Tensor& word,
    const Tensor& position, const Tensor& type, const Tensor& gamma, const Tensor& beta, double eps, double p,
    int64_t seed, int64_t site, const OptionalTensor& keys) {
  const c10::cuda::CUDAGuard guard(word.device());
  const Embedding embedding{
      input_ids, position_ids, token_type_ids, word, position, type, dropout_mask(p, seed, site, keys)};
  const int64_t rows = input_ids.size(0);
  Tensor y = at::empty({rows, word.size(1)}, word.options()), mean = floats(word, {rows}), rstd = floats(word, {rows});
  const bool done = embedding.has_kernel() && same_type(gamma, {&beta}) &&
                    with_types(word, gamma, [&](auto activations, auto parameters) {
                      using T = typename decltype(activations)::type;
                      using P = typename decltype(parameters)::type;
                      kernels::embedding_forward<T, P>({.input = embedding.input<T>(),
                                                        .gamma = in<P>(gamma),
                                                        .beta = in<P>(beta),
                                                        .eps = static_cast<float>(eps),
                                                        .y = out<T>(y),
                                                        .mean = out<float>(mean),
                                                        .rstd = out<float>(rstd)},
                                                       stream_of(word));
                    });
  if (!done) {
    return composite::embedding_layer_norm_dropout(input_ids, position_ids, token_type_ids, word, position, type, gamma,
                                                   beta, eps, p, seed, site, keys);
  }
  return {y, mean, rstd, composite::nothing_kept(word)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> embedding_layer_norm_dropout_backward(
    const Tensor& grad, const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids,
    const Tensor& word, const Tensor& position, const Tensor& type, const Tensor& mean, const Tensor& rstd,
    const Tensor& gamma, double p, int64_t seed, int64_t site, const OptionalTensor& keys, const Tensor& kept) {
  const c10::cuda::CUDAGuard guard(word.device());
  const Embedding embedding{
      input_ids, position_ids, token_type_ids, word, position, type, dropout_mask(p, seed, site, keys)};
  const int64_t rows = input_ids.size(0), columns = word.size(1);
  const bool fused_type = type.size(0) <= kernels::kFusedTypeRows;
  const Tensor dword = at::zeros_like(word), dposition = at::zeros_like(position), dtype = at::zeros_like(type),
               dgamma = at::empty_like(gamma), dbeta = at::empty_like(gamma);
  const bool done = embedding.has_kernel() && same_type(word, {&grad}) &&
                    with_types(word, gamma, [&](auto activations, auto parameters) {
                      using T = typename decltype(activations)::type;
                      using P = typename decltype(parameters)::type;
                      const kernels::Stream stream = stream_of(word);
                      const Tensor dsum = floats(word, {rows, columns});
                      const Tensor workspace = floats(word, {kernels::embedding_backward_workspace(rows, columns)});
                      kernels::embedding_backward<T, P>({.input = embedding.input<T>(),
                                                         .dy = in<T>(grad),
                                                         .gamma = in<P>(gamma),
                                                         .mean = in<float>(mean),
                                                         .rstd = in<float>(rstd),
                                                         .dsum = out<float>(dsum),
                                                         .dgamma = out<P>(dgamma),
                                                         .dbeta = out<P>(dbeta),
                                                         .dtype = fused_type ? out<T>(dtype) : nullptr,
                                                         .workspace = out<float>(workspace)},
                                                        stream);
                      const int64_t count = kernels::embedding_key_count(rows, type.size(0));
                      const Tensor unsorted = at::empty({count}, word.options().dtype(at::kInt));
                      kernels::embedding_keys({.rows = rows,
                                               .ids = embedding.ids(),
                                               .table_rows = embedding.table_rows(),
                                               .keys = out<int32_t>(unsorted)},
                                              stream);
                      const auto [sorted, order] = at::sort(unsorted, /*stable=*/true, /*dim=*/0, /*descending=*/false);
                      const Tensor borders = floats(word, {kernels::embedding_scatter_workspace(count, columns)});
                      kernels::embedding_scatter<T>({.rows = rows,
                                                     .columns = columns,
                                                     .count = count,
                                                     .table_rows = embedding.table_rows(),
                                                     .dsum = in<float>(dsum),
                                                     .keys = in<int32_t>(sorted),
                                                     .order = in<int64_t>(order),
                                                     .dword = out<T>(dword),
                                                     .dposition = out<T>(dposition),
                                                     .dtype = fused_type ? nullptr : out<T>(dtype),
                                                     .workspace = out<float>(borders)},
                                                    stream);
                    });
  if (!done) {
    return composite::embedding_layer_norm_dropout_backward(grad, input_ids, position_ids, token_type_ids, word,
                                                            position, type, mean, rstd, gamma, p, seed, site, keys,
                                                            kept);
  }
  return {dword, dposition, dtype, dgamma, dbeta};
}

}  // namespace
}  // namespace bert::cuda

TORCH_LIBRARY_IMPL(bert, CUDA, m) {
  m.impl("embedding_layer_norm_dropout", bert::cuda::embedding_layer_norm_dropout);
  m.impl("embedding_layer_norm_dropout_backward", bert::cuda::embedding_layer_norm_dropout_backward);
}
