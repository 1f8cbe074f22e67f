// libcublasLt.so.13: the products that LibTorch calls, with their epilogues. They run as null_device::MatrixProduct;
// alpha and beta are read at once, the scales of FP8 when the product runs. Arguments that do not fit together give
// cuBLASLt's codes. An attribute that is not made is a fault that gives its number.
#include <cublasLt.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/null_device/null_device.h"

namespace {

using null_device::MatrixProduct;

struct Description {
  cudaDataType_t scalar = CUDA_R_32F;  // type of alpha and beta
  cublasOperation_t operation_a = CUBLAS_OP_N, operation_b = CUBLAS_OP_N;
  cublasLtPointerMode_t pointers = CUBLASLT_POINTER_MODE_HOST;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  int32_t bias_type = -1;
  void* auxiliary = nullptr;
  int64_t auxiliary_leading = 0;
  const float *scale_a = nullptr, *scale_b = nullptr;
  int8_t fast_sums = 0;
};

struct Layout {
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0, columns = 0, leading = 0;
  int32_t batch = 1;
  int64_t stride = 0;
};

struct Preference {};

// cuBLASLt's types are opaque, and its pointers are to ours.
Description* ours(cublasLtMatmulDesc_t description) { return reinterpret_cast<Description*>(description); }
Layout* ours(cublasLtMatrixLayout_t layout) { return reinterpret_cast<Layout*>(layout); }
Preference* ours(cublasLtMatmulPreference_t preference) { return reinterpret_cast<Preference*>(preference); }

cublasStatus_t not_made(const std::string& what) {
  null_device::fault("cublasLt: " + what + " is not made");
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

/// Reads the value of an attribute, which must have the size of its type.
template <class T>
cublasStatus_t take(T* target, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(target, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

double number_at(const void* place, cudaDataType type) {
  if (type == CUDA_R_64F) return *static_cast<const double*>(place);
  if (type == CUDA_R_32I) return *static_cast<const int32_t*>(place);
  return static_cast<double>(*static_cast<const float*>(place));
}

MatrixProduct::Matrix matrix(const void* data, const Layout& layout) {
  return {.data = data, .leading = layout.leading, .batch_stride = layout.stride, .type = layout.type};
}

bool is_as_large(const Layout& layout, int64_t rows, int64_t columns, int32_t batch) {
  return layout.rows == rows && layout.columns == columns && layout.batch == batch &&
         layout.leading >= std::max<int64_t>(1, rows);
}

/// True if the layouts are those of one product.
bool fit(const MatrixProduct& product, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const int64_t m = product.m, n = product.n, k = product.k;
  return is_as_large(a, product.transpose_a ? k : m, product.transpose_a ? m : k, d.batch) &&
         is_as_large(b, product.transpose_b ? n : k, product.transpose_b ? k : n, d.batch) &&
         is_as_large(c, m, n, d.batch) && is_as_large(d, m, n, d.batch);
}

bool is_fp8(const MatrixProduct::Matrix& matrix) {
  return matrix.type == CUDA_R_8F_E4M3 || matrix.type == CUDA_R_8F_E5M2;
}

/// True if cuBLASLt has the product on Hopper: the sums of FP8 run along the columns of both matrices, not both are E5M2,
/// and addresses and lengths are multiples of 16 bytes.
bool has_product(const MatrixProduct& p) {
  if (!is_fp8(p.a) && !is_fp8(p.b)) return true;
  constexpr int64_t kBytes = 16;
  const auto in_place = [](const MatrixProduct::Matrix& matrix) {
    return reinterpret_cast<uintptr_t>(matrix.data) % kBytes == 0 && matrix.leading % kBytes == 0;
  };
  return is_fp8(p.a) && is_fp8(p.b) && (p.a.type == CUDA_R_8F_E4M3 || p.b.type == CUDA_R_8F_E4M3) && p.transpose_a &&
         !p.transpose_b && p.m % kBytes == 0 && p.k % kBytes == 0 && in_place(p.a) && in_place(p.b) && in_place(p.d) &&
         p.scale_a != nullptr && p.scale_b != nullptr;
}

bool is_made(cudaDataType scalar) { return scalar == CUDA_R_32F || scalar == CUDA_R_64F || scalar == CUDA_R_32I; }

}  // namespace

extern "C" {

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scalar) {
  if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC || !is_made(scalar))
    return not_made("a product with sums or factors of type " + std::to_string(scalar));
  *description = reinterpret_cast<cublasLtMatmulDesc_t>(new Description{.scalar = scalar});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  delete ours(description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  Description& target = *ours(description);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(&target.operation_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(&target.operation_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return take(&target.pointers, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(&target.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(&target.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(&target.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(&target.auxiliary, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(&target.auxiliary_leading, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(&target.scale_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(&target.scale_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return take(&target.fast_sums, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE:
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: {
      int32_t mode = 0;
      const cublasStatus_t status = take(&mode, value, bytes);
      return mode == CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F ? status
                                                             : not_made("scales of another kind than a scalar");
    }
    default:
      return not_made("attribute " + std::to_string(attribute) + " of a product");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{
      .type = type, .rows = static_cast<int64_t>(rows), .columns = static_cast<int64_t>(columns), .leading = leading});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete ours(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return take(&ours(layout)->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return take(&ours(layout)->stride, value, bytes);
    default:
      return not_made("attribute " + std::to_string(attribute) + " of a matrix");
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete ours(preference);
  return CUBLAS_STATUS_SUCCESS;
}

// There is one algorithm, which suits every preference.
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t*, void* workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Description& how = *ours(description);
  if (how.pointers != CUBLASLT_POINTER_MODE_HOST) return not_made("a product with alpha and beta on the device");
  MatrixProduct product;
  product.function = "cublasLtMatmul";
  product.transpose_a = how.operation_a != CUBLAS_OP_N;
  product.transpose_b = how.operation_b != CUBLAS_OP_N;
  product.m = ours(d_layout)->rows;
  product.n = ours(d_layout)->columns;
  product.k = product.transpose_a ? ours(a_layout)->rows : ours(a_layout)->columns;
  product.batch = ours(d_layout)->batch;
  if (!fit(product, *ours(a_layout), *ours(b_layout), *ours(c_layout), *ours(d_layout)) || alpha == nullptr ||
      beta == nullptr) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (workspace_bytes > 0 && !null_device::is_device(workspace)) {
    null_device::fault("cublasLtMatmul: the workspace is no device memory");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  product.a = matrix(a, *ours(a_layout));
  product.b = matrix(b, *ours(b_layout));
  product.c = matrix(c, *ours(c_layout));
  product.d = matrix(d, *ours(d_layout));
  product.alpha = number_at(alpha, how.scalar);
  product.beta = number_at(beta, how.scalar);
  product.epilogue = how.epilogue;
  product.bias = how.bias;
  product.bias_type = how.bias_type;
  product.auxiliary = how.auxiliary;
  product.auxiliary_leading = how.auxiliary_leading;
  product.scale_a = how.scale_a;
  product.scale_b = how.scale_b;
  if (!has_product(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (product.m > 0 && product.n > 0 && product.batch > 0) null_device::run_product(stream, product);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
