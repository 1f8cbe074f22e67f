#include <ATen/ATen.h>

#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

// Numbers of cublasLtEpilogue_t, which are sums of these.
constexpr int kDefault = 1, kRelu = 2, kBias = 4, kGradient = 16, kGelu = 32, kDerivative = 64, kAuxiliary = 128,
              kGradientOfB = 512;
constexpr int kDerivativeOfGelu = kDerivative | kAuxiliary;

/// Of cudaDataType_t's number.
at::ScalarType scalar_type(int type) {
  switch (type) {
    case 0:
      return at::kFloat;
    case 1:
      return at::kDouble;
    case 2:
      return at::kHalf;
    case 3:
      return at::kChar;
    case 10:
      return at::kInt;
    case 14:
      return at::kBFloat16;
    case 28:
      return at::kFloat8_e4m3fn;
    case 29:
      return at::kFloat8_e5m2;
    default:
      fault("a product of type " + std::to_string(type) + ", which this device does not have");
      return at::kByte;
  }
}

/// The type of sums. fp64 is exact for the sums of int8.
at::ScalarType sum_type(at::ScalarType type) {
  return at::isIntegralType(type, /*includeBool=*/false) || type == at::kDouble ? at::kDouble : at::kFloat;
}

bool is_made(int epilogue) {
  switch (epilogue) {
    case kDefault:
    case kRelu:
    case kBias:
    case kRelu | kBias:
    case kGelu:
    case kGelu | kBias:
    case kGelu | kAuxiliary:
    case kGelu | kAuxiliary | kBias:
    case kDerivativeOfGelu:
    case kDerivativeOfGelu | kGradient:
    case kGradientOfB:
      return true;
    default:
      return false;
  }
}

/// One matrix of a batch, transposed: cuBLAS's columns are its rows.
at::Tensor matrix(const MatrixProduct::Matrix& m, int64_t batch, int64_t rows, int64_t columns) {
  const at::ScalarType type = scalar_type(m.type);
  auto* const data = static_cast<char*>(host_view(m.data));
  const int64_t offset = batch * m.batch_stride * static_cast<int64_t>(c10::elementSize(type));
  return at::from_blob(data + offset, {columns, rows}, {m.leading, 1}, at::TensorOptions().dtype(type));
}

at::Tensor bias(const MatrixProduct& p, int64_t size) {
  if (p.bias == nullptr) fault(std::string(p.function) + ": an epilogue without its bias");
  const at::ScalarType type = scalar_type(p.bias_type >= 0 ? p.bias_type : p.d.type);
  return at::from_blob(host_view(p.bias), {size}, at::TensorOptions().dtype(type));
}

/// What follows the sum, in its type.
at::Tensor epilogue_of(const MatrixProduct& p, int64_t batch, at::Tensor sum) {
  const int d_type = p.d.type;
  if ((p.epilogue & kBias) != 0) {
    sum = sum + bias(p, p.m).to(sum.scalar_type());
  }
  if ((p.epilogue & kAuxiliary) != 0) {
    if (p.auxiliary == nullptr) fault(std::string(p.function) + ": an epilogue without its auxiliary matrix");
    const at::Tensor before_gelu =
        matrix({p.auxiliary, p.auxiliary_leading, p.d.batch_stride, d_type}, batch, p.m, p.n);
    if ((p.epilogue & kDerivative) != 0) {
      const at::Tensor gradient = at::gelu_backward(sum, before_gelu.to(sum.scalar_type()), "tanh");
      if ((p.epilogue & kGradient) != 0) bias(p, p.m).copy_(gradient.sum(0));
      return gradient;
    }
    before_gelu.copy_(sum);
  }
  if ((p.epilogue & kRelu) != 0) sum = at::relu(sum);
  if ((p.epilogue & kGelu) != 0) sum = at::gelu(sum, "tanh");
  return sum;
}

}  // namespace

void multiply(const MatrixProduct& p) {
  const c10::InferenceMode inference;
  if (!is_made(p.epilogue)) {
    return fault(std::string(p.function) + ": this device does not have the epilogue " + std::to_string(p.epilogue));
  }
  if (p.m == 0 || p.n == 0) return;
  const at::ScalarType type = scalar_type(p.d.type), sums = sum_type(scalar_type(p.a.type));
  double alpha = p.alpha;
  for (const float* scale : {p.scale_a, p.scale_b}) alpha *= scale != nullptr ? *host_view_of(scale) : 1.0F;
  const bool plain = p.epilogue == kDefault && alpha == 1.0;
  for (int64_t i = 0; i < p.batch; ++i) {
    // D = A B of columns is D^T = B^T A^T of rows.
    at::Tensor a = matrix(p.a, i, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k).to(sums);
    at::Tensor b = matrix(p.b, i, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n).to(sums);
    if (p.transpose_a) a = a.t();
    if (p.transpose_b) b = b.t();
    at::Tensor d = matrix(p.d, i, p.m, p.n);
    if (plain && p.beta == 0.0 && type == sums) {
      at::mm_out(d, b, a);
      continue;
    }
    // As at::linear on the CPU does it, to the same bits.
    const bool bias_first =
        p.epilogue == kBias && alpha == 1.0 && p.beta == 0.0 && (p.bias_type < 0 || p.bias_type == p.d.type);
    if (bias_first && type == sums) {
      at::addmm_out(d, at::from_blob(host_view(p.bias), {p.m}, at::TensorOptions().dtype(type)), b, a);
      continue;
    }
    at::Tensor sum = at::mm(b, a);
    if (alpha != 1.0) sum.mul_(alpha);
    if (p.beta != 0.0) sum.add_(matrix(p.c, i, p.m, p.n), p.beta);
    if (p.epilogue == kGradientOfB) bias(p, p.n).copy_(b.sum(1));
    d.copy_(epilogue_of(p, i, sum));
  }
}

}  // namespace null_device
