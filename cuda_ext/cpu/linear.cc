// Linear layers on the CPU: the choice of the GEMM for each product.
#include "cuda_ext/cpu/linear.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "cuda_ext/dispatch/linear.h"

// Exported by libtorch_cpu since 1.12; its header is not installed. result = beta result + alpha a b, any strides.
namespace at::native {
void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta, float alpha);
}

// Exported by libtorch_cpu where it has MKL; null elsewhere. c = alpha a b + beta c, column by column, as in Fortran.
extern "C" {
[[gnu::weak]] void sgemm_(const char* a_form, const char* b_form, const int* rows, const int* columns, const int* depth,
                          const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
                          const float* beta, float* c, const int* ldc);
[[gnu::weak]] int MKL_Set_Num_Threads_Local(int threads);  // of the calling thread; 0: as of the process
}

namespace bert::cpu {
namespace {

// Note [GEMM backends of the CPU]
// LibTorch sends fp32 products to MKL, whose fp32 kernels do not go beyond AVX2 on AMD. oneDNN reaches 430 GFLOP/s
// where MKL reaches 195 (two Zen 5 threads, T = 128 .. 4096, BERT-base's layers, forward and both backward products; at
// T = 128 MKL falls to 94). Products below kSmall multiplications stay with LibTorch: MKL needs no code of its own for
// each shape. The smallest products of BERT-base at T = 128 are above kSmall. LibTorch sends bf16 products to oneDNN
// too, but its addmm first copies the bias into every row of the result; linear_pointwise does not (8 % of the product
// at T = 4096, H = 768, I = 3072). oneDNN has no fast products of fp16, nor of bf16 before AVX-512, and LibTorch runs
// them as loops of one thread. Converted to fp32 and back they are six times as fast forward and 14 times backward (T =
// 1024, H = 128), and round once.
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

// Note [Shapes of products]
// oneDNN compiles code for each shape and keeps the code of the last 1,024 shapes. Packed tokens have another T in
// nearly every step, and so have masked tokens. Products of T rows are therefore made in two parts: the rows up to the
// last multiple of kBlock, and the rest with rows of zeros up to a multiple of kRest. The same holds for products over
// T rows, the gradients of weights: the part of the rest comes first, because bf16 rounds each part, and the rest is
// the small one. A model of 4 layers of 256 that trained in bf16 on real text had 0.8 GB from step 200 to step 350 and
// made 242 sequences/s; one product for each T had 2.7 GB at step 300, 3.6 GB at step 1,500, and made 210 (two Zen 5
// threads, 32 sequences of up to 128 tokens). BERT-base with micro-batches of 2 and an evaluation every 100 steps had
// 2,276 MB at step 300 and 2,304 MB at step 700 in fp32, and 2,502 MB at both in bf16.
constexpr int64_t kBlock = 64, kRest = 16;

/// True if products of these dtypes and sizes go to mkldnn_matmul, which refuses fp32 too where there is no fast bf16.
bool in_blocks(const Tensor& a, int64_t rows, int64_t columns, int64_t depth) {
  if (!has_one_dnn() || !one_dnn_has_bf16() || rows < 1 || columns < 2 || depth < 1) return false;
  return a.scalar_type() == at::kBFloat16 || (a.scalar_type() == at::kFloat && one_dnn(rows, columns, depth));
}

Tensor with_rows(const Tensor& x, int64_t multiple) {
  const int64_t rows = x.size(0);
  return rows % multiple == 0 ? x : composite::padded_rows(x, (rows / multiple + 1) * multiple, x.scalar_type());
}

// MKL cuts a product of few rows among its threads, and each part has sums of another order: on a processor with AVX2
// alone products of 5 to 7 and of 9 to 11 rows have other bits with two threads than with one, and one row has others
// than the same row among many. Products of 1 to 15 rows therefore get rows of zeros up to 16.
Tensor with_enough_rows(const Tensor& x) { return x.size(0) < kRest ? with_rows(x, kRest) : x; }

/// a b. a [T, K], b [K, N].
Tensor product_of_rows(const Tensor& a, const Tensor& b) {
  const int64_t rows = a.size(0), whole = rows / kBlock * kBlock;
  const Tensor result = at::empty({rows, b.size(1)}, a.options());
  if (whole > 0) at::native::mkldnn_matmul(a.narrow(0, 0, whole), b, result.narrow(0, 0, whole), 0.0F, 1.0F);
  if (whole < rows) {
    const Tensor rest = with_rows(a.narrow(0, whole, rows - whole), kRest);
    const Tensor of_rest = at::empty({rest.size(0), b.size(1)}, a.options());
    at::native::mkldnn_matmul(rest, b, of_rest, 0.0F, 1.0F);
    result.narrow(0, whole, rows - whole).copy_(of_rest.narrow(0, 0, rows - whole));
  }
  return result;
}

/// a^T b. a [T, N], b [T, K].
Tensor product_over_rows(const Tensor& a, const Tensor& b) {
  const int64_t rows = a.size(0), whole = rows / kBlock * kBlock;
  const Tensor result = at::empty({a.size(1), b.size(1)}, a.options());
  const auto last = [&](const Tensor& x) { return with_rows(x.narrow(0, whole, rows - whole), kRest); };
  if (whole < rows) at::native::mkldnn_matmul(last(a).t(), last(b), result, 0.0F, 1.0F);
  if (whole > 0) {
    at::native::mkldnn_matmul(a.narrow(0, 0, whole).t(), b.narrow(0, 0, whole), result, whole < rows ? 1.0F : 0.0F,
                              1.0F);
  }
  return result;
}

// Note [Products of MKL]
// On processors of Intel the fp32 gradients of large layers are products of MKL, which copies what oneDNN reads with a
// stride of whole pages: products of 3,072 columns take half the time, BERT-base's backward at T = 1024 runs 1.36 times
// as fast (two threads of a Xeon with AMX). MKL cuts the depth of a product among its threads if the result is small.
// So a product is made of blocks, each by one thread: the bits do not depend on the number of threads.
constexpr int64_t kManyElements = 1 << 19, kSide = 384;  // of results; of blocks

/// True if a gradient with this many elements, of x's dtype, is a product of MKL.
bool by_mkl(const Tensor& x, int64_t elements) {
#if defined(__x86_64__)
  static const bool fast = sgemm_ != nullptr && MKL_Set_Num_Threads_Local != nullptr && __builtin_cpu_is("intel") &&
                           __builtin_cpu_supports("avx512f");
  return fast && x.scalar_type() == at::kFloat && elements >= kManyElements;
#else
  return false;
#endif
}

/// a b, or a^T b, in fp32. a [M, K] or, transposed, [K, M]; b [K, N]. Both are contiguous.
Tensor mkl_product(const Tensor& a, bool transposed, const Tensor& b) {
  const int64_t rows = a.size(transposed ? 1 : 0), columns = b.size(1);
  const int depth = static_cast<int>(b.size(0)), lda = static_cast<int>(a.size(1)), ldb = static_cast<int>(columns);
  const char* const form = transposed ? "T" : "N";
  constexpr float kOne = 1.0F, kZero = 0.0F;
  const Tensor result = at::empty({rows, columns}, a.options());
  auto* const to = result.mutable_data_ptr<float>();
  const auto *left = a.const_data_ptr<float>(), *right = b.const_data_ptr<float>();
  const int64_t across = (columns + kSide - 1) / kSide, blocks = across * ((rows + kSide - 1) / kSide);
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    const int before = MKL_Set_Num_Threads_Local(1);
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block / across * kSide, column = block % across * kSide;
      const int m = static_cast<int>(std::min(kSide, rows - row)),
                n = static_cast<int>(std::min(kSide, columns - column));
      sgemm_("N", form, &n, &m, &depth, &kOne, right + column, &ldb, left + (transposed ? row : row * lda), &lda,
             &kZero, to + row * columns + column, &ldb);
    }
    MKL_Set_Num_Threads_Local(before);
  });
  return result;
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
  const int64_t rows = x.size(0), columns = weight.size(0), depth = x.size(1);
  const bool blocks = in_blocks(x, rows, columns, depth);
  if (blocks && !bias) return product_of_rows(x, weight.t());
  if (!blocks && (x.scalar_type() == at::kDouble || !one_dnn(rows, columns, depth)))
    return at::linear(with_enough_rows(x), weight, bias).narrow(0, 0, rows);
  return linear_pointwise(with_rows(x, rows < kBlock ? kRest : kBlock), weight, bias).narrow(0, 0, rows);
}

namespace {

Tensor linear(const Tensor& x, const Tensor& weight, const OptionalTensor& bias) {
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
  const bool blocks = in_blocks(x, x.size(0), weight.size(0), x.size(1)) && x.size(1) > 1;
  const auto of_rows = [&] {
    if (!blocks) return at::mm(with_enough_rows(grad), weight).narrow(0, 0, x.size(0));
    return by_mkl(x, x.numel()) ? mkl_product(grad, /*transposed=*/false, weight) : product_of_rows(grad, weight);
  };
  const auto over_rows = [&] {
    if (!blocks) return at::mm(grad.t(), x);
    return by_mkl(x, weight.numel()) ? mkl_product(grad, /*transposed=*/true, x) : product_over_rows(grad, x);
  };
  return {needed[0] ? of_rows() : Tensor(), needed[1] ? over_rows() : Tensor(),
          // (The sum accumulates in fp32 in any dtype. Asking for an fp32 sum would first convert all of grad.)
          needed[2] ? at::sum(grad, {0}) : Tensor()};
}

}  // namespace
}  // namespace bert::cpu

TORCH_LIBRARY_IMPL(bert, CPU, m) {
  m.impl("linear", bert::cpu::linear);
  m.impl("linear_backward", bert::cpu::linear_backward);
}
