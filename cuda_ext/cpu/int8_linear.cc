#include "cuda_ext/cpu/int8_linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <memory>

#include "cuda_ext/cpu/tensors.h"
#include "cuda_ext/simd/kernels.h"

#if __has_include(<fbgemm/Fbgemm.h>)
#include <fbgemm/Fbgemm.h>
#define BERT_HAS_FBGEMM 1
#else
#define BERT_HAS_FBGEMM 0
#endif

namespace bert::cpu {

#if BERT_HAS_FBGEMM

namespace {

constexpr float kWeightLevel = 127;  // signed bytes from -127 to 127

class Int8Linear {
 public:
  Int8Linear(const Tensor& weight, const Tensor& bias)
      : wide_(fbgemm::fbgemmHasAvx512VnniSupport()), outputs_(weight.size(0)), inputs_(weight.size(1)) {
    const Tensor top = weight.abs().amax(1).clamp_min(1e-30);
    scales_ = (top / kWeightLevel).contiguous();
    const Tensor bytes = (weight / scales_.unsqueeze(1)).round().clamp(-kWeightLevel, kWeightLevel).to(at::kChar);
    offsets_ = (bytes.sum(1, /*keepdim=*/false, at::kInt) * zero()).to(at::kInt).contiguous();
    bias_ = bias.defined() ? bias.clone() : at::zeros_like(scales_);
    const Tensor rows = bytes.contiguous();
    weight_ = std::make_unique<fbgemm::PackBMatrix<int8_t, int32_t>>(
        fbgemm::matrix_op_t::Transpose, static_cast<int>(inputs_), static_cast<int>(outputs_),
        rows.const_data_ptr<int8_t>(), static_cast<int>(inputs_));
  }

  [[nodiscard]] Tensor operator()(const Tensor& x) const {
    TORCH_CHECK(x.dim() == 2 && x.size(1) == inputs_ && x.scalar_type() == at::kFloat && x.is_cpu(),
                "int8 linear: x must be fp32 [T, ", inputs_, "] on the CPU, got ", x.scalar_type(), " ", x.sizes(),
                ".");
    const int64_t tokens = x.size(0);
    const Tensor input = x.contiguous();
    const Tensor scales = at::empty({tokens}, x.options());
    const Tensor q = at::empty({tokens, inputs_}, x.options().dtype(at::kByte));
    const Tensor sums = at::empty({tokens, outputs_}, x.options().dtype(at::kInt));
    Tensor y = at::empty({tokens, outputs_}, x.options());
    if (tokens == 0) return y;
    const simd::Quantize quantize{.type = simd::Type::kFloat,
                                  .columns = inputs_,
                                  .x = input.const_data_ptr(),
                                  .q = q.mutable_data_ptr<uint8_t>(),
                                  .scales = scales.mutable_data_ptr<float>(),
                                  .level = zero() - 1,
                                  .zero = zero()};
    at::parallel_for(0, tokens, grain(inputs_ * 4),
                     [&](int64_t begin, int64_t end) { simd::kernels().quantize(quantize, begin, end); });
    multiply(q, sums);
    const simd::Dequantize dequantize{.type = simd::Type::kFloat,
                                      .stream = streams(y),
                                      .columns = outputs_,
                                      .sums = sums.const_data_ptr<int32_t>(),
                                      .offsets = offsets_.const_data_ptr<int32_t>(),
                                      .scales = scales.const_data_ptr<float>(),
                                      .column_scales = scales_.const_data_ptr<float>(),
                                      .bias = bias_.const_data_ptr<float>(),
                                      .y = y.mutable_data_ptr()};
    at::parallel_for(0, tokens, grain(outputs_ * 4),
                     [&](int64_t begin, int64_t end) { simd::kernels().dequantize(dequantize, begin, end); });
    return y;
  }

 private:
  [[nodiscard]] int32_t zero() const { return wide_ ? 128 : 64; }

  /// sums = q weight^T.
  void multiply(const Tensor& q, const Tensor& sums) const {
    const int shares = at::in_parallel_region() ? 1 : at::get_num_threads();
    at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
      for (int64_t share = begin; share < end; ++share) {
        fbgemm::PackAMatrix<uint8_t, int32_t> left(fbgemm::matrix_op_t::NoTranspose, static_cast<int>(q.size(0)),
                                                   static_cast<int>(inputs_), q.const_data_ptr<uint8_t>(),
                                                   static_cast<int>(inputs_));
        fbgemm::DoNothing<int32_t, int32_t> nothing;
        const fbgemm::memCopy<int32_t, int32_t> in_place(nothing);
        fbgemm::fbgemmPacked(left, *weight_, sums.mutable_data_ptr<int32_t>(), sums.mutable_data_ptr<int32_t>(),
                             static_cast<uint32_t>(outputs_), in_place, static_cast<int>(share), shares);
      }
    });
  }

  const bool wide_;  // q has 8 bits
  const int64_t outputs_, inputs_;
  Tensor scales_, offsets_, bias_;  // [N]: of the weight's rows; zero times the sum of a row's bytes
  std::unique_ptr<fbgemm::PackBMatrix<int8_t, int32_t>> weight_;
};

}  // namespace

std::function<Tensor(const Tensor& x)> int8_linear(const Tensor& weight, const Tensor& bias) {
  TORCH_CHECK(weight.is_cpu() && weight.dim() == 2 && weight.scalar_type() == at::kFloat,
              "int8 linear: the weight must be fp32 [N, K] on the CPU, got ", weight.scalar_type(), " ", weight.sizes(),
              " on ", weight.device(), ". int8 runs on the CPU alone.");
  TORCH_CHECK(fbgemm::fbgemmSupportedCPU(),
              "int8 linear: FBGEMM does not support this processor; it needs AVX2. Use fp32.");
  const auto linear = std::make_shared<const Int8Linear>(weight, bias);
  return [linear](const Tensor& x) { return (*linear)(x); };
}

#else

std::function<Tensor(const Tensor& x)> int8_linear(const Tensor& /*weight*/, const Tensor& /*bias*/) {
  TORCH_CHECK(false, "int8 linear: this LibTorch has no FBGEMM. Use fp32.");
}

#endif

}  // namespace bert::cpu
