// libcublas.so.13: handles, and the products that LibTorch calls for dense real tensors: of matrices, of a matrix and a
// vector, and of two vectors. They run as null_device::MatrixProduct; alpha and beta are read at once. Arguments that
// cuBLAS refuses give its codes. What is not made is a fault: numbers that lie on the device, and sums in fp16.
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/null_device/null_device.h"

using null_device::MatrixProduct;

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
  void* workspace = nullptr;
};

namespace {

using Matrix = MatrixProduct::Matrix;

cublasStatus_t not_made(const std::string& what) {
  null_device::fault(what + " is not made");
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

bool transposes(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }

double number_at(const void* place, cudaDataType type) {
  if (type == CUDA_R_64F) return *static_cast<const double*>(place);
  if (type == CUDA_R_32I) return *static_cast<const int32_t*>(place);
  return static_cast<double>(*static_cast<const float*>(place));
}

/// The type of alpha and beta; false for sums that are not made.
bool scalar_type_of(cublasComputeType_t compute, cudaDataType* type) {
  switch (compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      *type = CUDA_R_32F;
      return true;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      *type = CUDA_R_64F;
      return true;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      *type = CUDA_R_32I;
      return true;
    default:
      return false;
  }
}

/// True if no size is negative, and the leading dimensions span the rows.
bool is_valid(const MatrixProduct& product) {
  const int64_t a_rows = product.transpose_a ? product.k : product.m;
  const int64_t b_rows = product.transpose_b ? product.n : product.k;
  return std::min({product.m, product.n, product.k, product.batch}) >= 0 &&
         product.a.leading >= std::max<int64_t>(1, a_rows) && product.b.leading >= std::max<int64_t>(1, b_rows) &&
         product.d.leading >= std::max<int64_t>(1, product.m);
}

/// Note [cuBLAS's workspace]
/// Without a workspace of the caller's, cuBLAS takes one that all streams of the handle share, so results need not
/// repeat, and it may allocate in a capture. LibTorch sets one after every cublasSetStream, which drops it.
cublasStatus_t run(cublasHandle_t handle, MatrixProduct product, const void* alpha, const void* beta,
                   cudaDataType scalar) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!is_valid(product) || alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (product.m == 0 || product.n == 0 || product.batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (handle->workspace == nullptr) {
    null_device::fault(std::string(product.function) + ": the handle has no workspace since its stream was set");
  }
  product.alpha = number_at(alpha, scalar);
  product.beta = number_at(beta, scalar);
  null_device::run_product(handle->stream, product);
  return CUBLAS_STATUS_SUCCESS;
}

Matrix matrix(const void* data, cudaDataType type, int leading, int64_t stride = 0) {
  return {.data = data, .leading = leading, .batch_stride = stride, .type = type};
}

struct Sizes {
  int m = 0, n = 0, k = 0;
  int batch = 1;
};

/// C = alpha * op(A) op(B) + beta * C.
cublasStatus_t run_matrices(cublasHandle_t handle, const char* function, cublasOperation_t operation_a,
                            cublasOperation_t operation_b, const Sizes& sizes, const Matrix& a, const Matrix& b,
                            const Matrix& c, const void* alpha, const void* beta, cudaDataType scalar) {
  if (handle != nullptr && handle->pointers != CUBLAS_POINTER_MODE_HOST)
    return not_made(std::string(function) + " with alpha and beta on the device");
  MatrixProduct product;
  product.function = function;
  product.transpose_a = transposes(operation_a);
  product.transpose_b = transposes(operation_b);
  product.m = sizes.m;
  product.n = sizes.n;
  product.k = sizes.k;
  product.batch = sizes.batch;
  product.a = a;
  product.b = b;
  product.c = product.d = c;
  return run(handle, product, alpha, beta, scalar);
}

/// y = alpha * op(A) x + beta * y, as y' = alpha * x' op(A)' + beta * y'. A is `rows` x `columns`. A vector is a matrix
/// of one row, whose leading dimension is the increment.
cublasStatus_t run_matrix_vector(cublasHandle_t handle, const char* function, cublasOperation_t operation, int rows,
                                 int columns, const Matrix& a, const Matrix& x, const Matrix& y, const void* alpha,
                                 const void* beta) {
  if (x.leading < 0 || y.leading < 0) return not_made(std::string(function) + " with a negative increment");
  const bool transposed = transposes(operation);
  const Sizes sizes{.m = 1, .n = transposed ? columns : rows, .k = transposed ? rows : columns};
  return run_matrices(handle, function, CUBLAS_OP_N, transposed ? CUBLAS_OP_N : CUBLAS_OP_T, sizes, x, a, y, alpha,
                      beta, static_cast<cudaDataType>(a.type));
}

/// The sum of x * y, into device memory.
cublasStatus_t run_dot(cublasHandle_t handle, const char* function, int count, const Matrix& x, const Matrix& y,
                       const Matrix& result) {
  if (handle != nullptr && handle->pointers != CUBLAS_POINTER_MODE_DEVICE)
    return not_made(std::string(function) + " with a result for the host");
  if (x.leading < 0 || y.leading < 0) return not_made(std::string(function) + " with a negative increment");
  const float one = 1, zero = 0;
  MatrixProduct product;
  product.function = function;
  product.transpose_b = true;
  product.m = product.n = 1;
  product.k = count;
  product.a = x;
  product.b = y;
  product.c = product.d = result;
  return run(handle, product, &one, &zero, CUDA_R_32F);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = nullptr;  // Note [cuBLAS's workspace]
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t) {
  constexpr uintptr_t kAlignment = 256;
  if (reinterpret_cast<uintptr_t>(workspace) % kAlignment != 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (workspace != nullptr && !null_device::is_device(workspace)) {
    null_device::fault("cublasSetWorkspace: the workspace is no device memory");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  handle->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  *mode = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  *mode = handle->pointers;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
                            int n, int k, const void* alpha, const void* a, cudaDataType a_type, int a_leading,
                            const void* b, cudaDataType b_type, int b_leading, const void* beta, void* c,
                            cudaDataType c_type, int c_leading, cublasComputeType_t compute, cublasGemmAlgo_t) {
  cudaDataType scalar = CUDA_R_32F;
  if (!scalar_type_of(compute, &scalar)) return not_made("cublasGemmEx with this computeType");
  return run_matrices(handle, "cublasGemmEx", operation_a, operation_b, {.m = m, .n = n, .k = k},
                      matrix(a, a_type, a_leading), matrix(b, b_type, b_leading), matrix(c, c_type, c_leading), alpha,
                      beta, scalar);
}

cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t operation_a,
                                          cublasOperation_t operation_b, int m, int n, int k, const void* alpha,
                                          const void* a, cudaDataType a_type, int a_leading, long long a_stride,
                                          const void* b, cudaDataType b_type, int b_leading, long long b_stride,
                                          const void* beta, void* c, cudaDataType c_type, int c_leading,
                                          long long c_stride, int batch, cublasComputeType_t compute,
                                          cublasGemmAlgo_t) {
  cudaDataType scalar = CUDA_R_32F;
  if (!scalar_type_of(compute, &scalar)) return not_made("cublasGemmStridedBatchedEx with this computeType");
  return run_matrices(handle, "cublasGemmStridedBatchedEx", operation_a, operation_b,
                      {.m = m, .n = n, .k = k, .batch = batch}, matrix(a, a_type, a_leading, a_stride),
                      matrix(b, b_type, b_leading, b_stride), matrix(c, c_type, c_leading, c_stride), alpha, beta,
                      scalar);
}

cublasStatus_t cublasSgemmEx(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b, int m,
                             int n, int k, const float* alpha, const void* a, cudaDataType a_type, int a_leading,
                             const void* b, cudaDataType b_type, int b_leading, const float* beta, void* c,
                             cudaDataType c_type, int c_leading) {
  return run_matrices(handle, "cublasSgemmEx", operation_a, operation_b, {.m = m, .n = n, .k = k},
                      matrix(a, a_type, a_leading), matrix(b, b_type, b_leading), matrix(c, c_type, c_leading), alpha,
                      beta, CUDA_R_32F);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                              int m, int n, int k, const float* alpha, const float* a, int a_leading, const float* b,
                              int b_leading, const float* beta, float* c, int c_leading) {
  return run_matrices(handle, "cublasSgemm", operation_a, operation_b, {.m = m, .n = n, .k = k},
                      matrix(a, CUDA_R_32F, a_leading), matrix(b, CUDA_R_32F, b_leading),
                      matrix(c, CUDA_R_32F, c_leading), alpha, beta, CUDA_R_32F);
}

cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t operation_a,
                                         cublasOperation_t operation_b, int m, int n, int k, const float* alpha,
                                         const float* a, int a_leading, long long a_stride, const float* b,
                                         int b_leading, long long b_stride, const float* beta, float* c, int c_leading,
                                         long long c_stride, int batch) {
  return run_matrices(handle, "cublasSgemmStridedBatched", operation_a, operation_b,
                      {.m = m, .n = n, .k = k, .batch = batch}, matrix(a, CUDA_R_32F, a_leading, a_stride),
                      matrix(b, CUDA_R_32F, b_leading, b_stride), matrix(c, CUDA_R_32F, c_leading, c_stride), alpha,
                      beta, CUDA_R_32F);
}

cublasStatus_t cublasSgemv_v2(cublasHandle_t handle, cublasOperation_t operation, int rows, int columns,
                              const float* alpha, const float* a, int a_leading, const float* x, int x_increment,
                              const float* beta, float* y, int y_increment) {
  return run_matrix_vector(handle, "cublasSgemv", operation, rows, columns, matrix(a, CUDA_R_32F, a_leading),
                           matrix(x, CUDA_R_32F, x_increment), matrix(y, CUDA_R_32F, y_increment), alpha, beta);
}

cublasStatus_t cublasSdot_v2(cublasHandle_t handle, int count, const float* x, int x_increment, const float* y,
                             int y_increment, float* result) {
  return run_dot(handle, "cublasSdot", count, matrix(x, CUDA_R_32F, x_increment), matrix(y, CUDA_R_32F, y_increment),
                 matrix(result, CUDA_R_32F, 1));
}

cublasStatus_t cublasDgemm_v2(cublasHandle_t handle, cublasOperation_t operation_a, cublasOperation_t operation_b,
                              int m, int n, int k, const double* alpha, const double* a, int a_leading, const double* b,
                              int b_leading, const double* beta, double* c, int c_leading) {
  return run_matrices(handle, "cublasDgemm", operation_a, operation_b, {.m = m, .n = n, .k = k},
                      matrix(a, CUDA_R_64F, a_leading), matrix(b, CUDA_R_64F, b_leading),
                      matrix(c, CUDA_R_64F, c_leading), alpha, beta, CUDA_R_64F);
}

cublasStatus_t cublasDgemmStridedBatched(cublasHandle_t handle, cublasOperation_t operation_a,
                                         cublasOperation_t operation_b, int m, int n, int k, const double* alpha,
                                         const double* a, int a_leading, long long a_stride, const double* b,
                                         int b_leading, long long b_stride, const double* beta, double* c,
                                         int c_leading, long long c_stride, int batch) {
  return run_matrices(handle, "cublasDgemmStridedBatched", operation_a, operation_b,
                      {.m = m, .n = n, .k = k, .batch = batch}, matrix(a, CUDA_R_64F, a_leading, a_stride),
                      matrix(b, CUDA_R_64F, b_leading, b_stride), matrix(c, CUDA_R_64F, c_leading, c_stride), alpha,
                      beta, CUDA_R_64F);
}

cublasStatus_t cublasDgemv_v2(cublasHandle_t handle, cublasOperation_t operation, int rows, int columns,
                              const double* alpha, const double* a, int a_leading, const double* x, int x_increment,
                              const double* beta, double* y, int y_increment) {
  return run_matrix_vector(handle, "cublasDgemv", operation, rows, columns, matrix(a, CUDA_R_64F, a_leading),
                           matrix(x, CUDA_R_64F, x_increment), matrix(y, CUDA_R_64F, y_increment), alpha, beta);
}

cublasStatus_t cublasDdot_v2(cublasHandle_t handle, int count, const double* x, int x_increment, const double* y,
                             int y_increment, double* result) {
  return run_dot(handle, "cublasDdot", count, matrix(x, CUDA_R_64F, x_increment), matrix(y, CUDA_R_64F, y_increment),
                 matrix(result, CUDA_R_64F, 1));
}

cublasStatus_t cublasDotEx(cublasHandle_t handle, int count, const void* x, cudaDataType x_type, int x_increment,
                           const void* y, cudaDataType y_type, int y_increment, void* result, cudaDataType result_type,
                           cudaDataType execution) {
  if (execution != CUDA_R_32F && execution != CUDA_R_64F) return not_made("cublasDotEx with this executiontype");
  return run_dot(handle, "cublasDotEx", count, matrix(x, x_type, x_increment), matrix(y, y_type, y_increment),
                 matrix(result, result_type, 1));
}

}  // extern "C"
