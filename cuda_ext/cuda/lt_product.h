// Matrix products of cuBLASLt with epilogues that LibTorch does not offer.
#pragma once

#include <ATen/core/Tensor.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

namespace bert::cuda {

// Note [Products with epilogues]
// In bf16 and fp16, bias and GELU of the feed-forward layer are computed where its products have their results in
// registers: forward writes z = x w^T + b and gelu(z) (GELU_AUX_BIAS), backward dz = gelu'(z) (grad w) with its sums
// over tokens (DGELU_BGRAD). The bias of query, key and value has its sums from the product of their weights' gradient
// (BGRADB). This saves 46 of the 146 KiB that a token of BERT-large moves in a layer beside its products, and four
// launches. GELU is computed from the fp32 sum; z, results and the sums of dz are rounded once. cuBLASLt has the tanh
// form alone, so erf keeps the kernels of bias_gelu.
//
// Algorithms that split a sum add the parts in fp32, in a fixed order. The workspace is LibTorch's, which is fixed for
// a stream, so products can be captured in graphs.
//
// These products have run on no GPU. So the first time that a kind of product meets a weight's shape and dtype, it is
// computed in both ways for the first tokens, and compared: the norm of the difference may be a hundredth of the
// result's. If it is more, or cuBLASLt has no algorithm, the plain operators go on, and a warning says so once. A result
// with inf or NaN decides nothing; nor does a product while a graph is captured, where no host can compare: the plain
// operators compute both.

/// d = epilogue(a b). Matrices are of one dtype, bf16 or fp16, but for d of kBiasGradient. Row-major, or transposed
/// views of such.
struct LtProduct {
  enum class Epilogue {
    kBiasGelu,      // d = gelu(a b + bias), auxiliary = a b + bias
    kGeluGradient,  // d = gelu'(auxiliary) (a b), bias = its sums of columns
    kBiasGradient,  // d = a b in fp32, bias = the sums of a's rows, in fp32
  };
  Epilogue epilogue;
  at::Tensor a, b;       // [M, K], [K, N]
  at::Tensor d;          // [M, N], written
  at::Tensor bias;       // [N]; kBiasGradient: [M]
  at::Tensor auxiliary;  // [M, N] as d
};

/// Queues the product on the current stream. False if cuBLASLt has no algorithm for it.
bool run(const LtProduct& product);

/// What tells products apart whose comparison counts for all: the epilogue, and shape and dtype of a weight.
struct LtKind {
  LtProduct::Epilogue epilogue;
  int64_t rows, columns;
  at::ScalarType dtype;
  auto operator<=>(const LtKind&) const = default;
};
using Tensors = std::vector<at::Tensor>;

/// Two ways to the same results from tensors with a row for each token.
struct TwoWays {
  std::function<bool(const Tensors& of_tokens, Tensors& results)> product;  // false: it has no algorithm
  std::function<Tensors(const Tensors& of_tokens)> plain;
};

/// The results of the product, or of the plain operators: Note [Products with epilogues].
Tensors checked_product(const LtKind& kind, const Tensors& of_tokens, const TwoWays& ways);

}  // namespace bert::cuda
