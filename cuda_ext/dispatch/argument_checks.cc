#include "cuda_ext/dispatch/argument_checks.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>

#include "cuda_ext/dispatch/operator.h"
#include "cuda_ext/simd/kernels.h"

namespace bert::checks {

void check_tensor(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like) {
  TORCH_CHECK(tensor.defined(), op, ": ", name, " is undefined; a tensor of shape ", shape, " is expected");
  TORCH_CHECK(tensor.layout() == at::kStrided, op, ": ", name, " must be a dense tensor, got layout ", tensor.layout());
  bool fits = tensor.dim() == static_cast<int64_t>(shape.size());
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] < 0 || tensor.size(static_cast<int64_t>(i)) == shape[i];
  }
  TORCH_CHECK(fits, op, ": ", name, " must be ", shape, " (-1: any), got ", tensor.sizes());
  TORCH_CHECK(tensor.is_contiguous(), op, ": ", name, " must be contiguous, got strides ", tensor.strides(),
              " of shape ", tensor.sizes(), ". Call contiguous() first.");
  TORCH_CHECK(tensor.device() == like.device(), op, ": ", name, " must be on ", like.device(), ", got ",
              tensor.device());
}

void check(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape, const Tensor& like) {
  check_tensor(op, name, tensor, shape, like);
  TORCH_CHECK(tensor.is_floating_point(), op, ": ", name, " must be a floating-point tensor, got ",
              tensor.scalar_type());
}

void check_type(const char* op, const char* name, const Tensor& tensor, at::ScalarType type, const char* why,
                const char* remedy) {
  TORCH_CHECK(tensor.scalar_type() == type, op, ": ", name, " must be ", type, ", ", why, ", got ",
              tensor.scalar_type(), remedy);
}

void check_statistic(const char* op, const char* name, const Tensor& tensor, at::IntArrayRef shape,
                     const Tensor& like) {
  check_tensor(op, name, tensor, shape, like);
  check_type(op, name, tensor, composite::accumulation_type(like), "as forward returns it");
}

void check_integers(const char* op, const char* name, const Tensor& tensor, int64_t size, at::ScalarType type,
                    const Tensor& like) {
  TORCH_CHECK(
      tensor.defined() && tensor.dim() == 1 && (size < 0 || tensor.size(0) == size) && tensor.scalar_type() == type, op,
      ": ", name, " must be [", size, "] ", type, ", got ",
      tensor.defined() ? c10::str(tensor.sizes(), " ", tensor.scalar_type()) : "an undefined tensor");
  check_tensor(op, name, tensor, {size}, like);
}

void check_range(const char* op, const char* name, const Tensor& ids, int64_t high) {
  if (!ids.is_cpu()) return;
  const int64_t *const id = ids.const_data_ptr<int64_t>(), *const end = id + ids.numel();
  const auto outside = [high](int64_t value) { return value < 0 || value >= high; };
  int64_t count = 0;  // counted first, because a loop without a branch is faster than find_if
  for (const int64_t* i = id; i != end; ++i) count += outside(*i) ? 1 : 0;
  if (count == 0) return;
  const int64_t* const first = std::find_if(id, end, outside);
  TORCH_CHECK(false, op, ": ", name, "[", first - id, "] must be in [0, ", high, "), got ", *first);
}

void check_keys(const char* op, double p, int64_t site, const OptionalTensor& keys, int64_t tokens,
                const Tensor& like) {
  TORCH_CHECK(p >= 0.0 && p < 1.0, op, ": dropout probability must be in [0, 1), got ", p);
  TORCH_CHECK(site >= 0 && site <= std::numeric_limits<uint32_t>::max(), op,
              ": dropout.site must be in [0, 2^32), got ", site);
  if (p > 0.0) check_integers(op, "dropout.keys", keys.value_or(Tensor()), tokens, at::kLong, like);
}

void check_kept(const char* op, const Tensor& kept, int64_t rows, int64_t columns, const Tensor& like) {
  const bool empty = kept.defined() && kept.numel() == 0;
  check_tensor(op, "kept", kept, empty ? kept.sizes() : at::IntArrayRef({rows, simd::kept_bytes(columns)}), like);
  check_type(op, "kept", kept, at::kByte, "as forward returns it");
}

int64_t check_lengths(const char* op, const Tensor& cu_seqlens, int64_t high) {
  if (!cu_seqlens.is_cpu()) return -1;
  const int32_t* cu = cu_seqlens.const_data_ptr<int32_t>();
  TORCH_CHECK(cu[0] == 0, op, ": cu_seqlens must begin with 0, got ", cu[0]);
  for (int64_t b = 0; b + 1 < cu_seqlens.size(0); ++b) {
    TORCH_CHECK(cu[b + 1] >= cu[b] && cu[b + 1] - cu[b] <= high, op, ": a sequence must have 0 to ", high,
                " tokens, got cu_seqlens ", cu[b], " then ", cu[b + 1], " at ", b);
  }
  return cu[cu_seqlens.size(0) - 1];
}

void check_eps(const char* op, double eps) { TORCH_CHECK(eps > 0.0, op, ": eps must be above 0, got ", eps); }

int64_t check_rows(const char* op, const char* name, const Tensor& tensor) {
  TORCH_CHECK(!tensor.defined() || tensor.dim() > 0, op, ": ", name, " must be [T, ...], got a scalar");
  check(op, name, tensor, tensor.sizes(), tensor);
  return tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0);
}

}  // namespace bert::checks
