#include "cuda_ext/cuda/lt_product.h"

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace bert::cuda {
namespace {

using Epilogue = LtProduct::Epilogue;

template <class T, cublasStatus_t (*destroy)(T*)>
struct Destroy {
  void operator()(T* object) const { destroy(object); }
};
template <class T, cublasStatus_t (*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroy<T, destroy>>;
using Description = Handle<cublasLtMatmulDescOpaque_t, cublasLtMatmulDescDestroy>;
using Layout = Handle<cublasLtMatrixLayoutOpaque_t, cublasLtMatrixLayoutDestroy>;
using Preference = Handle<cublasLtMatmulPreferenceOpaque_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return CUDA_R_32F;
  return tensor.scalar_type() == at::kHalf ? CUDA_R_16F : CUDA_R_16BF;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU_BGRAD;
    case Epilogue::kBiasGradient:
      break;
  }
  return CUBLASLT_EPILOGUE_BGRADB;
}

/// Where a row-major matrix is a transposed view, its memory holds the transposed matrix by rows.
bool is_transposed(const at::Tensor& matrix) { return matrix.stride(1) != 1; }

/// cuBLAS reads by columns, so rows are its columns.
Layout layout_of(const at::Tensor& matrix) {
  const bool transposed = is_transposed(matrix);
  cublasLtMatrixLayout_t layout = nullptr;
  TORCH_CHECK(
      cublasLtMatrixLayoutCreate(&layout, type_of(matrix), static_cast<uint64_t>(matrix.size(transposed ? 0 : 1)),
                                 static_cast<uint64_t>(matrix.size(transposed ? 1 : 0)),
                                 matrix.stride(transposed ? 1 : 0)) == CUBLAS_STATUS_SUCCESS,
      "cublasLtMatrixLayoutCreate failed");
  return Layout(layout);
}

template <class T>
void set(const Description& description, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  TORCH_CHECK(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS,
      "cublasLtMatmulDescSetAttribute failed");
}

template <class T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  TORCH_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS,
      "cublasLtMatmulPreferenceSetAttribute failed");
}

/// D^T = B^T A^T of columns is D = A B of rows: cuBLASLt's first matrix is b.
Description description_of(const LtProduct& product) {
  cublasLtMatmulDesc_t made = nullptr;
  TORCH_CHECK(cublasLtMatmulDescCreate(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS,
              "cublasLtMatmulDescCreate failed");
  Description description(made);
  const auto operation = [](const at::Tensor& matrix) { return is_transposed(matrix) ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(description, CUBLASLT_MATMUL_DESC_TRANSA, operation(product.b));
  set(description, CUBLASLT_MATMUL_DESC_TRANSB, operation(product.a));
  set(description, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(product.epilogue));
  set(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, product.bias.data_ptr());
  set(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(product.bias)));
  if (product.auxiliary.defined()) {
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, product.auxiliary.data_ptr());
    set(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.auxiliary.stride(0));
  }
  return description;
}

/// Of 256 bytes at most.
uint32_t alignment_of(const at::Tensor& tensor) {
  uint32_t alignment = 256;
  while (reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % alignment != 0) alignment /= 2;
  return alignment;
}

Preference preference_of(const LtProduct& product, size_t workspace_bytes) {
  cublasLtMatmulPreference_t made = nullptr;
  TORCH_CHECK(cublasLtMatmulPreferenceCreate(&made) == CUBLAS_STATUS_SUCCESS, "cublasLtMatmulPreferenceCreate failed");
  Preference preference(made);
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace_bytes));
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(product.b));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(product.a));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(product.d));
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(product.d));
  return preference;
}

/// cuBLASLt reads whole vectors: rows of 8 elements, and bases of 16 bytes.
bool has_vectors(const at::Tensor& matrix) {
  constexpr int64_t kElements = 8;
  constexpr uint32_t kBytes = 16;
  return std::max(matrix.stride(0), matrix.stride(1)) % kElements == 0 && alignment_of(matrix) >= kBytes;
}

enum class Verdict { kUnknown, kGood, kRefused };

struct Verdicts {
  std::mutex mutex;
  std::map<LtKind, Verdict> of_kinds;
};
Verdicts& verdicts() {
  static auto* const instance = new Verdicts;
  return *instance;
}

Verdict decide(const LtKind& kind, Verdict verdict, const char* reason = "") {
  if (verdict == Verdict::kRefused) {
    TORCH_WARN("cuBLASLt ", reason, " (epilogue ", epilogue_of(kind.epilogue), ", ", kind.dtype, " weight of ",
               kind.rows, " x ", kind.columns, "); other kernels go on");
  }
  const std::lock_guard lock(verdicts().mutex);
  return verdicts().of_kinds[kind] = verdict;
}

/// Compares as Note [Products with epilogues] says. Nothing if the expected values say nothing.
std::optional<bool> agree(const Tensors& got, const Tensors& expected) {
  constexpr double kBound = 0.01;
  for (size_t i = 0; i < got.size(); ++i) {
    const at::Tensor want = expected[i].to(at::kDouble), difference = got[i].to(at::kDouble) - want;
    const double norm = want.norm().item<double>(), error = difference.norm().item<double>();
    if (!std::isfinite(norm)) return std::nullopt;
    if (!(error <= kBound * norm)) return false;
  }
  return true;
}

/// The kind's verdict, which the first tokens give if there was none.
Verdict verdict_of(const LtKind& kind, const Tensors& of_tokens, const TwoWays& ways) {
  {
    const std::lock_guard lock(verdicts().mutex);
    if (const Verdict known = verdicts().of_kinds[kind]; known != Verdict::kUnknown) return known;
  }
  const bool captured = c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
  if (captured || of_tokens.front().numel() == 0) return Verdict::kUnknown;
  constexpr int64_t kTokens = 1024;
  Tensors first, results;
  for (const at::Tensor& tensor : of_tokens) first.push_back(tensor.narrow(0, 0, std::min(kTokens, tensor.size(0))));
  if (!ways.product(first, results)) return decide(kind, Verdict::kRefused, "has no algorithm for a product");
  const std::optional<bool> good = agree(results, ways.plain(first));
  if (!good) return Verdict::kUnknown;
  return *good ? decide(kind, Verdict::kGood) : decide(kind, Verdict::kRefused, "computes a product wrongly");
}

}  // namespace

bool run(const LtProduct& product) {
  const auto& [epilogue, a, b, d, bias, auxiliary] = product;
  if (a.numel() == 0 || b.numel() == 0) return false;
  if (!has_vectors(a) || !has_vectors(b) || !has_vectors(d)) return false;
  const size_t workspace_bytes = at::cuda::getCUDABlasLtWorkspaceSize();
  void* const workspace = at::cuda::getCUDABlasLtWorkspace();
  const Description description = description_of(product);
  const Preference preference = preference_of(product, workspace_bytes);
  const Layout of_a = layout_of(a), of_b = layout_of(b), of_d = layout_of(d);
  const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
  cublasLtMatmulHeuristicResult_t found = {};
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(handle, description.get(), of_b.get(), of_a.get(), of_d.get(), of_d.get(),
                                     preference.get(), /*requestedAlgoCount=*/1, &found, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0) return false;
  const float alpha = 1, beta = 0;
  return cublasLtMatmul(handle, description.get(), &alpha, b.const_data_ptr(), of_b.get(), a.const_data_ptr(),
                        of_a.get(), &beta, d.const_data_ptr(), of_d.get(), d.data_ptr(), of_d.get(), &found.algo,
                        workspace, workspace_bytes,
                        c10::cuda::getCurrentCUDAStream().stream()) == CUBLAS_STATUS_SUCCESS;
}

Tensors checked_product(const LtKind& kind, const Tensors& of_tokens, const TwoWays& ways) {
  const Verdict verdict = verdict_of(kind, of_tokens, ways);
  Tensors results;
  if (verdict == Verdict::kGood && ways.product(of_tokens, results)) return results;
  return ways.plain(of_tokens);
}

}  // namespace bert::cuda
