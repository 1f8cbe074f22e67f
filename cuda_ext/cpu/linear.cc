// Linear layers on the CPU: the choice of the GEMM for each product.
#include "cuda_ext/cpu/linear.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <array>

#include "cuda_ext/dispatch/linear.h"

// Exported by libtorch_cpu since 1.12; its header is not installed. result = beta result + alpha a b, any strides.
namespace at::native {
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}

namespace bert::cpu {
namespace {

// Note [GEMM backends of the CPU]
// LibTorch sends fp32 products to MKL, whose fp32 kernels do not go beyond AVX2 on AMD. oneDNN reaches 430 GFLOP/s
// where MKL reaches 195 (two Zen 5 threads, T = 128 .. 4096, BERT-base's layers, forward and both backward products; at
// T = 128 MKL falls to 94). Products below kSmall multiplications stay with LibTorch: oneDNN compiles and keeps code
// for each shape, and packed tokens have another T in every step. With oneDNN the quick start's 600 steps took 26 s and
// 1.4 GB, without 18 s and 0.26 GB. The smallest products of BERT-base at T = 128 are above kSmall. LibTorch sends bf16
// products to oneDNN too, but its addmm first copies the bias into every row of the result; linear_pointwise does not
// (8 % of the product at T = 4096, H = 768, I = 3072). oneDNN has no fast products of fp16, nor of bf16 before AVX-512,
// and LibTorch runs them as loops of one thread. Converted to fp32 and back they are six times as fast forward and 14
// times backward (T = 1024, H = 128), and round once.
constexpr int64_t kSmall = 70'000'000;

bool one_dnn(int64_t rows, int64_t columns, int64_t depth) {
  return has_one_dnn() && rows * columns * depth >= kSmall && columns > 1;
}

/// True if oneDNN has fast products of bf16: from AVX-512 on, and as ONEDNN_MAX_CPU_ISA allows.
bool one_dnn_has_bf16() {
  static const bool has =
      at::hasMKLDNN() &&
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "").typed<bool()>().call();
  return has;
}

}  // namespace

bool has_one_dnn() { return at::globalContext().userEnabledMkldnn() && at::hasMKLDNN(); }

bool widened(const Tensor& x) {
  return x.scalar_type() == at::kHalf || (x.scalar_type() == at::kBFloat16 && !one_dnn_has_bf16());
}

Tensor linear_pointwise(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  using Signature = Tensor(const Tensor&, const Tensor&, const std::optional<Tensor>&, c10::string_view,
                           c10::List<std::optional<at::Scalar>>, std::optional<c10::string_view>);
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<Signature>();
  return op.call(x, weight, bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

Tensor product_and_bias(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  if (x.scalar_type() == at::kDouble || !one_dnn(x.size(0), weight.size(0), x.size(1)))
    return at::linear(x, weight, bias);
  return linear_pointwise(x, weight, bias);
}

namespace {

Tensor product(const Tensor& a, const Tensor& b) {
  // Without bf16, mkldnn_matmul refuses fp32 too; MKL's AVX2 is as fast there.
  if (a.scalar_type() != at::kFloat || !one_dnn(a.size(0), b.size(1), a.size(1)) || !one_dnn_has_bf16())
    return at::mm(a, b);
  Tensor result = at::empty({a.size(0), b.size(1)}, a.options());
  at::native::mkldnn_matmul(a, b, result, 0.0F, 1.0F);
  return result;
}

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
  checks::linear_dtypes(x, weight, bias);
  if (!widened(x)) return product_and_bias(x, weight, bias);
  return product_and_bias(x.to(at::kFloat), weight.to(at::kFloat),
                          bias ? OptionalTensor(bias->to(at::kFloat)) : std::nullopt)
      .to(x.scalar_type());
}

std::tuple<Tensor, Tensor, Tensor> linear_backward(const Tensor& grad, const Tensor& x, const Tensor& weight,
                                                   std::array<bool, 3> needed) {
  if (widened(x)) {
    auto [dx, dweight, dbias] =
        cpu::linear_backward(grad.to(at::kFloat), x.to(at::kFloat), weight.to(at::kFloat), needed);
    for (Tensor* gradient : {&dx, &dweight, &dbias}) {
      if (gradient->defined()) *gradient = gradient->to(x.scalar_type());
    }
    return {dx, dweight, dbias};
  }
  return {needed[0] ? product(grad, weight) : Tensor(), needed[1] ? product(grad.t(), x) : Tensor(),
          // (The sum accumulates in fp32 in any dtype. Asking for an fp32 sum would first convert all of grad.)
          needed[2] ? at::sum(grad, {0}) : Tensor()};
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("linear", bert::cpu::linear);
  m.impl("linear_backward", bert::cpu::linear_backward);
}
