#include "cuda_ext/dispatch/dropout.h"

#include <ATen/ATen.h>

#include <array>

#include "cuda_ext/dispatch/argument_checks.h"
#include "cuda_ext/dispatch/derivative.h"
#include "cuda_ext/ops.h"
#include "cuda_ext/scalar/philox.h"

namespace bert::composite {

namespace {

constexpr int64_t kLow32 = 0xFFFFFFFF;

Tensor high_word(const Tensor& x) { return at::bitwise_and(at::bitwise_right_shift(x, 32), kLow32); }

Tensor low_word(const Tensor& x) { return at::bitwise_and(x, kLow32); }

using Words = std::array<Tensor, 4>;

/// Philox4x32-10 on int64 tensors that hold 32-bit words; products wrap as uint64 would.
Words philox(uint32_t key0, uint32_t key1, Words c) {
  constexpr int64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const Tensor p0 = c[0] * kMultiplier0, p1 = c[2] * kMultiplier1;
    const Tensor next0 = high_word(p1).bitwise_xor_(c[1]).bitwise_xor_(static_cast<int64_t>(key0));
    const Tensor next2 = high_word(p0).bitwise_xor_(c[3]).bitwise_xor_(static_cast<int64_t>(key1));
    c = Words{next0, low_word(p1), next2, low_word(p0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

}  // namespace

Tensor nothing_kept(const Tensor& like) { return at::empty({0}, like.options().dtype(at::kByte)); }

Tensor dropout_scale(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p, at::ScalarType dtype) {
  return dropout_mask(keys, seed, site, columns, p).to(dtype).mul_(1.0 / (1.0 - p));
}

Tensor masked(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return p == 0.0 ? x : x * dropout_scale(*keys, seed, site, x.size(1), p, x.scalar_type());
}

std::tuple<Tensor, Tensor> dropout(const Tensor& x, double p, int64_t seed, int64_t site, const OptionalTensor& keys) {
  return {dropout_backward(x, p, seed, site, keys, {}), nothing_kept(x)};
}

Tensor dropout_backward(const Tensor& grad, double p, int64_t seed, int64_t site, const OptionalTensor& keys,
                        const Tensor& /*kept*/) {
  if (p == 0.0 || grad.numel() == 0) return grad.clone();
  const Tensor rows = grad.reshape({grad.size(0), -1});
  return (rows * dropout_scale(*keys, seed, site, rows.size(1), p, grad.scalar_type())).view(grad.sizes());
}

Tensor dropout_mask(const Tensor& keys, int64_t seed, int64_t site, int64_t columns, double p) {
  const int64_t tokens = keys.size(0), blocks = (columns + 3) / 4;
  const Tensor block = at::arange(blocks, keys.options());
  const Tensor zero = at::zeros({tokens, blocks}, keys.options());
  const Words words =
      philox(static_cast<uint32_t>(seed), static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32),
             Words{zero + low_word(keys).unsqueeze(1), zero + high_word(keys).unsqueeze(1), zero + site, zero + block});
  const Tensor word = at::stack({words[0], words[1], words[2], words[3]}, 2).view({tokens, 4 * blocks});
  return word.narrow(1, 0, columns) >= static_cast<int64_t>(dropout_threshold(p));
}

}  // namespace bert::composite

namespace bert::checks {

void dropout(const Tensor& x, double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys) {
  constexpr auto kOp = "dropout";
  check_rows(kOp, "x", x);
  check_keys(kOp, p, site, keys, x.size(0), x);
}

void dropout_backward(const Tensor& grad, double p, int64_t /*seed*/, int64_t site, const OptionalTensor& keys,
                      const Tensor& kept) {
  constexpr auto kOp = "dropout_backward";
  const int64_t columns = check_rows(kOp, "grad", grad);
  check_keys(kOp, p, site, keys, grad.size(0), grad);
  check_kept(kOp, kept, grad.size(0), columns, grad);
}

void dropout_mask(const Tensor& keys, int64_t /*seed*/, int64_t site, int64_t columns, double p) {
  constexpr auto kOp = "dropout_mask";
  check_integers(kOp, "keys", keys, -1, at::kLong, keys);
  check_keys(kOp, p, site, keys, keys.size(0), keys);
  TORCH_CHECK(columns >= 0, kOp, ": columns must not be negative, got ", columns);
}

}  // namespace bert::checks

namespace bert::dispatch {
namespace {

struct DropoutFunction : Differentiable<DropoutFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& x, double p, int64_t seed, int64_t site,
                               const OptionalTensor& keys) {
    const Forward scope(ctx);
    auto [y, kept] = dispatch::dropout(x, p, seed, site, keys);
    ctx->save_for_backward({keys.value_or(Tensor()), kept});
    ctx->mark_non_differentiable({kept});
    DropoutState{p, seed, site}.save(ctx);
    return {y, kept};
  }
  static variable_list gradients(AutogradContext* ctx, const Tensor& grad, const variable_list& saved) {
    const auto drop = DropoutState::load(ctx);
    const Tensor dx = dispatch::dropout_backward(grad, drop.p, drop.seed, drop.site, optional(saved[0]), saved[1]);
    return {dx, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(bert, m) {
  define<dropout>(m, "dropout(Tensor x, float p, int seed, int site, Tensor? keys) -> (Tensor y, Tensor kept)");
  define<dropout_backward>(
      m, "dropout_backward(Tensor grad, float p, int seed, int site, Tensor? keys, Tensor kept) -> Tensor");
  define<dropout_mask>(m, "dropout_mask(Tensor keys, int seed, int site, int columns, float p) -> Tensor");
  differentiate<dropout, DropoutFunction>(m);
  autocast_ignores<dropout>(m);
}

}  // namespace bert::dispatch

namespace bert::ops {

at::Tensor dropout(const at::Tensor& x, const Dropout& dropout) {
  if (dropout.p == 0.0) {  // without a copy, which an operator would make
    checks::dropout(x, dropout.p, dropout.seed, dropout.site, dispatch::optional(dropout.keys));
    return x;
  }
  return std::get<0>(dispatch::dropout(x, dropout.p, dropout.seed, dropout.site, dispatch::optional(dropout.keys)));
}

}  // namespace bert::ops
