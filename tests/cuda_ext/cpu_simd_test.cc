// The CPU's vector functions at the limits of rounding and range: GELU of every number of two bytes on every
// instruction set, and large results, which are written past the caches.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "cuda_ext/cpu/tensors.h"
#include "cuda_ext/dispatch/dropout.h"
#include "cuda_ext/dispatch/layer_norm.h"
#include "cuda_ext/simd/kernels.h"
#include "tests/support/ops_testing.h"

namespace bert {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Calls `f` with every instruction set that this machine has.
template <class F>
void for_instruction_sets(F f) {
  const std::string best = simd::kernels().name;
  for (const char* name : {"plain", "avx2", "avx512", "avx512_bf16", "amx"}) {
    if (!simd::choose_kernels(name)) continue;
    INFO(name);
    f();
  }
  REQUIRE(simd::choose_kernels(best.c_str()));
}

/// GELU in double: x times a gate, its slope, and the sum of the slope's terms without their signs.
struct Gelu {
  double value, slope, size;
};
Gelu gelu(double x, bool tanh) {
  if (!tanh) {
    const double phi = 0.5 * std::erfc(-x * M_SQRT1_2), bell = x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI);
    return {x * phi, phi + bell, phi + std::abs(bell)};
  }
  const double k = 2.0 * std::sqrt(2.0 / M_PI), gate = 1.0 / (1.0 + std::exp(-k * (x + 0.044715 * x * x * x)));
  const double bell = x * gate * (1.0 - gate) * k * (1.0 + 3.0 * 0.044715 * x * x);
  return {x * gate, gate + bell, gate + std::abs(bell)};
}

/// Every pattern of 16 bits in `type`: within half a unit in the last place and 5 % of that. The slope may also differ
/// by 3e-5 of its terms, which cancel. Values below 2^-118 may be 0. Above 1e18 the square of x overflows in the slope
/// of the tanh form.
void check_gelu(at::ScalarType type, bool tanh) {
  const double unit = type == at::kHalf ? 0x1p-10 : 0x1p-7, smallest = type == at::kHalf ? 0x1.1p-25 : 0x1p-118;
  const Tensor x = at::arange(-32768, 32768, at::kInt).to(at::kShort).view(type).view({256, 256});
  const Tensor bias = at::zeros({256}, x.options());
  const ops::Gelu form = tanh ? ops::Gelu::kTanh : ops::Gelu::kErf;
  const Tensor leaf = x.clone().requires_grad_(true);
  const Tensor y = ops::bias_gelu(leaf, bias, form);
  const Tensor dx = torch::autograd::grad({y}, {leaf}, {at::ones_like(y)})[0];
  const Tensor xs = x.to(at::kDouble), ys = y.detach().to(at::kDouble), slopes = dx.to(at::kDouble);
  int wrong = 0;
  const auto hold = [&](double at, const char* what, double got, double want, double size) {
    if (std::isnan(want) && std::isnan(got)) return;
    if (std::abs(want) >= (type == at::kHalf ? 65520.0 : 0x1.ffp127) && got == want * INFINITY) return;
    if (std::abs(got - want) <= 0.525 * unit * std::abs(want) + 3e-5 * size + smallest || got == want) return;
    if (++wrong <= 3) UNSCOPED_INFO(what << " of " << at << ": got " << got << ", want " << want);
  };
  for (int64_t i = 0; i < xs.numel(); ++i) {
    const double at = xs.const_data_ptr<double>()[i];
    const Gelu want = gelu(at, tanh);
    hold(at, "value", ys.const_data_ptr<double>()[i], want.value, 0.0);
    if (!tanh || std::abs(at) < 1e18) hold(at, "slope", slopes.const_data_ptr<double>()[i], want.slope, want.size);
  }
  CHECK(wrong == 0);
}

TEST_CASE("GELU of every bf16 and fp16 number is its definition, rounded", "[unit]") {
  for_instruction_sets([] {
    for (const auto type : {at::kBFloat16, at::kHalf}) {
      for (const bool tanh : {true, false}) {
        INFO(type << (tanh ? " tanh" : " erf"));
        check_gelu(type, tanh);
      }
    }
  });
}

TEST_CASE("A backward that reads the kept mask equals one that draws it again", "[unit]") {
  constexpr double kDrop = 0.3, kEps = 1e-12;
  constexpr int64_t kSeed = 5, kSite = 7, kRows = 70;
  for_instruction_sets([&] {
    for (const int64_t columns : {3, 40, 257}) {
      const auto floats = [&](at::IntArrayRef sizes, uint64_t seed) { return randn(sizes, seed).to(at::kFloat); };
      const Tensor keys = keys_of(kRows), x = floats({kRows, columns}, 1), residual = floats({kRows, columns}, 2),
                   bias = floats({columns}, 3), gamma = floats({columns}, 4), grad = floats({kRows, columns}, 5);
      const auto [y, mean, rstd, kept] =
          dispatch::bias_dropout_residual_layer_norm(x, bias, residual, gamma, bias, kEps, kDrop, kSeed, kSite, keys);
      REQUIRE(kept.numel() * 8 >= kRows * columns);
      const auto backward = [&](const Tensor& mask) {
        const auto [dx, dbias, dresidual, dgamma, dbeta] = dispatch::bias_dropout_residual_layer_norm_backward(
            grad, x, bias, residual, mean, rstd, gamma, kDrop, kSeed, kSite, keys, mask);
        return at::cat({dx.flatten(), dbias, dresidual.flatten(), dgamma, dbeta});
      };
      CHECK(at::equal(backward(kept), backward(composite::nothing_kept(x))));
      Tensor other = kept.clone();
      other.view(-1)[0] = other.view(-1)[0].item<int64_t>() ^ 1;
      CHECK(!at::equal(backward(other), backward(kept)));
      const Tensor bits = std::get<1>(dispatch::dropout(x, kDrop, kSeed, kSite, keys));
      CHECK(at::equal(dispatch::dropout_backward(grad, kDrop, kSeed, kSite, keys, bits),
                      dispatch::dropout_backward(grad, kDrop, kSeed, kSite, keys, composite::nothing_kept(x))));
    }
  });
}

TEST_CASE("Large results, which go past the caches, equal those of a few rows at a time", "[unit]") {
  constexpr int64_t kRows = 1088, kColumns = 1040, kPart = 64;
  static_assert(kRows * kColumns * sizeof(float) >= cpu::kStreamBytes);
  const Tensor x = randn({kRows, kColumns}, 1).to(at::kFloat), residual = randn({kRows, kColumns}, 2).to(at::kFloat),
               upstream = randn({kRows, kColumns}, 3).to(at::kFloat);
  const Tensor bias = randn({kColumns}, 4).to(at::kFloat), gamma = randn({kColumns}, 5).to(at::kFloat);
  const auto dropout = [&](const Tensor& keys) { return ops::Dropout{.p = 0.1, .seed = 7, .site = 3, .keys = keys}; };
  const std::vector<std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>> cases = {
      [&](const Tensor& a, const Tensor&, const Tensor&) { return ops::bias_gelu(a, bias, ops::Gelu::kErf); },
      [&](const Tensor& a, const Tensor&, const Tensor&) { return ops::layer_norm(a, gamma, bias, 1e-12); },
      [&](const Tensor& a, const Tensor& b, const Tensor& keys) {
        return ops::bias_dropout_residual_layer_norm(a, bias, b, gamma, bias, 1e-12, dropout(keys));
      },
      [&](const Tensor& a, const Tensor&, const Tensor& keys) { return ops::dropout(a, dropout(keys)); }};
  for (size_t i = 0; i < cases.size(); ++i) {
    INFO("case " << i);
    const auto run = [&](int64_t first, int64_t rows) {
      const auto part = [&](const Tensor& t) { return t.narrow(0, first, rows); };
      const Tensor a = part(x).detach().clone().requires_grad_(true),
                   b = part(residual).detach().clone().requires_grad_(true);
      const Tensor y = cases[i](a, b, at::arange(first, first + rows, at::kLong));
      const auto grads = torch::autograd::grad({y}, {a, b}, {part(upstream)}, std::nullopt, false, true);
      return std::vector<Tensor>{y.detach(), grads[0], grads[1].defined() ? grads[1] : grads[0]};
    };
    const auto whole = run(0, kRows);
    for (int64_t first = 0; first < kRows; first += kPart) {
      const auto few = run(first, kPart);
      for (size_t result = 0; result < few.size(); ++result) {
        REQUIRE(at::equal(whole[result].narrow(0, first, kPart), few[result]));
      }
    }
  }
}

TEST_CASE("A large table's gradient is that of its used rows alone, with any number of threads", "[unit]") {
  constexpr int64_t kTokens = 700, kOften = 300, kRows = 2200, kColumns = 1024;
  static_assert(kRows * kColumns * 2 >= cpu::kStreamBytes);
  // Many tokens share few ids; the first and the last row are used.
  const Tensor ids = at::cat({integers(9, kOften, 1), integers(kRows, kTokens - kOften - 2, 2),
                              at::tensor({int64_t{0}, kRows - 1}, at::kLong)});
  const auto [used, ranks] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
  REQUIRE(static_cast<size_t>(used.size(0) * kColumns) * sizeof(float) < cpu::kStreamBytes);
  const Tensor positions = at::arange(kTokens, at::kLong).remainder(128), types = integers(2, kTokens, 3);
  const int threads = at::get_num_threads();
  for_instruction_sets([&, used = used, ranks = ranks] {
    for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
      INFO(type);
      const auto random = [&](at::IntArrayRef sizes, uint64_t seed) { return randn(sizes, seed).to(type); };
      const Tensor table = random({kRows, kColumns}, 4), upstream = random({kTokens, kColumns}, 5);
      const auto gradients = [&](const Tensor& word, const Tensor& word_ids) {
        std::vector<Tensor> leaves = {word, random({128, kColumns}, 6), random({2, kColumns}, 7), random({kColumns}, 8),
                                      random({kColumns}, 9)};
        for (Tensor& leaf : leaves) leaf = leaf.detach().requires_grad_(true);
        const Tensor y =
            ops::embedding_layer_norm_dropout(word_ids, positions, types, {leaves[0], leaves[1], leaves[2]}, leaves[3],
                                              leaves[4], 1e-12, drop(0.1, kTokens));
        return torch::autograd::grad({y}, leaves, {upstream});
      };
      at::set_num_threads(1);
      auto want = gradients(table.index_select(0, used), ranks);
      want[0] = at::zeros_like(table).index_copy_(0, used, want[0]);
      for (const int count : {1, 2, 3}) {
        INFO(count << " threads");
        at::set_num_threads(count);
        const auto got = gradients(table, ids);
        for (size_t i = 0; i < want.size(); ++i) CHECK(at::equal(got[i], want[i]));
      }
      at::set_num_threads(threads);
    }
  });
}

}  // namespace
}  // namespace bert
