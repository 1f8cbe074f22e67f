// Attention by cuDNN: LibTorch's kernels for aten::_cudnn_attention_forward and _cudnn_attention_backward, with the
// arithmetic of attention.h in place of cuDNN's.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "tests/null_device/operators/attention.h"
#include "tests/null_device/operators/operators.h"

namespace null_device {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

constexpr double kDropoutSteps = 16.0;  // cuDNN's kernels drop multiples of 1/16
constexpr uintptr_t kAlignment = 16;    // of every tensor

/// One call. Without cumulative lengths the tensors are [batch, head, token, size], otherwise [token, head, size].
struct Problem {
  Tensor query, key, value, cumulative_q, cumulative_k;
  int64_t longest_q = 0, longest_k = 0;
  double dropout = 0.0, scale = 1.0;
  Tensor bias = {};  // [batch, head, query, key], or undefined

  [[nodiscard]] bool packed() const { return cumulative_q.defined(); }
  [[nodiscard]] int64_t batches() const { return packed() ? cumulative_q.size(0) - 1 : query.size(0); }
  [[nodiscard]] int64_t heads() const { return query.size(1); }
  /// Of the out tensor and the gradients.
  [[nodiscard]] std::vector<int64_t> out_sizes() const {
    std::vector<int64_t> sizes = query.sizes().vec();
    sizes.back() = value.size(-1);
    return sizes;
  }
};

Tensor defined_or_none(const OptionalTensor& tensor) { return tensor.value_or(Tensor()); }

/// Sets the problem's bias, whose dimensions of size 1 hold for all batches, heads or queries.
void set_bias(Problem& p, const Tensor& bias) {
  if (!bias.defined()) return;
  if (p.packed()) fault("cuDNN's attention: this device has no bias with cumulative lengths");
  TORCH_CHECK(bias.scalar_type() == p.query.scalar_type(), "cuDNN's attention got a bias of ", bias.scalar_type());
  p.bias = bias.expand({p.batches(), p.heads(), p.longest_q, p.longest_k});
}

void check(const Problem& p, bool causal) {
  TORCH_CHECK(p.query.scalar_type() == at::kHalf || p.query.scalar_type() == at::kBFloat16,
              "cuDNN's attention takes fp16 and bf16, not ", p.query.scalar_type());
  TORCH_CHECK(p.query.dim() == (p.packed() ? 3 : 4), "cuDNN's attention got a query of sizes ", p.query.sizes());
  TORCH_CHECK(p.packed() == p.cumulative_k.defined(), "cuDNN's attention needs both cumulative lengths or none");
  if (causal) fault("cuDNN's attention: this device has no causal mask");
  if (p.query.size(1) != p.key.size(1)) fault("cuDNN's attention: this device has no shared keys");
}

void check_alignment(const Tensor& tensor, const char* name) {
  if (!tensor.defined() || tensor.numel() == 0) return;
  const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  if (address % kAlignment != 0) fault(std::string("cuDNN's attention: ") + name + " is not aligned to 16 bytes");
}

/// A tensor with these sizes whose dimensions lie in memory in the order of those of `like`.
Tensor empty_with_order_of(const Tensor& like, at::IntArrayRef sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto smaller = [&](size_t a, size_t b) { return like.strides()[a] < like.strides()[b]; };
  std::stable_sort(order.begin(), order.end(), smaller);
  std::vector<int64_t> strides(sizes.size());
  int64_t next = 1;
  for (const size_t d : order) {
    strides[d] = next;
    next *= sizes[d];
  }
  return at::empty_strided(sizes, strides, like.options());
}

/// Rows of a head in the host's view of a tensor.
Rows rows_of(const Tensor& view, bool packed, int64_t batch, int64_t head, int64_t begin) {
  const int64_t element =
      (packed ? 0 : batch * view.stride(0)) + head * view.stride(1) + begin * view.stride(packed ? 0 : 2);
  return {static_cast<char*>(view.data_ptr()) + element * view.element_size(), view.stride(packed ? 0 : 2)};
}

/// Host views of the tensors of a call.
struct Views {
  Problem problem;
  Tensor out, logsumexp, seed, offset, grad_out, grad_query, grad_key, grad_value;
};

Head head_of(const Views& v, int64_t batch, int64_t h) {
  const Problem& p = v.problem;
  Piece q{0, p.longest_q}, k{0, p.longest_k};
  if (p.packed()) {
    q = piece_of(p.cumulative_q.const_data_ptr<int32_t>(), batch, p.longest_q);
    k = piece_of(p.cumulative_k.const_data_ptr<int32_t>(), batch, p.longest_k);
  }
  Head head;
  head.type = p.query.scalar_type();
  head.queries = q.rows;
  head.keys = k.rows;
  head.head_size = p.query.size(-1);
  head.value_size = p.value.size(-1);
  head.scale = p.scale;
  if (p.dropout > 0.0) {
    head.dropout = {.p = std::floor(p.dropout * kDropoutSteps) / kDropoutSteps,
                    .factor = 1.0 / (1.0 - p.dropout),
                    .seed = static_cast<uint64_t>(*v.seed.const_data_ptr<int64_t>()),
                    .offset = static_cast<uint64_t>(*v.offset.const_data_ptr<int64_t>()),
                    .first = static_cast<uint64_t>((batch * p.heads() + h) * p.longest_q * p.longest_k),
                    .row = static_cast<uint64_t>(p.longest_k)};
  }
  const auto rows = [&](const Tensor& view, const Piece& piece) {
    return view.defined() ? rows_of(view, p.packed(), batch, h, piece.begin) : Rows{};
  };
  head.query = rows(p.query, q);
  head.key = rows(p.key, k);
  head.value = rows(p.value, k);
  head.out = rows(v.out, q);
  head.bias = rows(p.bias, q);
  head.grad_out = rows(v.grad_out, q);
  head.grad_query = rows(v.grad_query, q);
  head.grad_key = rows(v.grad_key, k);
  head.grad_value = rows(v.grad_value, k);
  if (v.logsumexp.defined()) {  // [batch, head, token] or [token, head], and perhaps one more dimension of size 1
    const Rows logsumexp = rows_of(v.logsumexp, p.packed(), batch, h, q.begin);
    head.logsumexp = static_cast<float*>(logsumexp.data);
    head.logsumexp_stride = logsumexp.stride;
  }
  return head;
}

Views viewed(const Views& device) {
  HostViews view;
  Views host = device;
  for (Tensor* tensor : {&host.problem.query, &host.problem.key, &host.problem.value, &host.problem.cumulative_q,
                         &host.problem.cumulative_k, &host.problem.bias, &host.out, &host.logsumexp, &host.seed,
                         &host.offset, &host.grad_out, &host.grad_query, &host.grad_key, &host.grad_value}) {
    *tensor = view(*tensor);
  }
  return host;
}

std::vector<Access> accesses_of(const Views& v, bool backward) {
  std::vector<Access> accesses;
  for (const Tensor& tensor : {v.problem.query, v.problem.key, v.problem.value, v.problem.cumulative_q,
                               v.problem.cumulative_k, v.problem.bias, v.grad_out}) {
    add_accesses(accesses, tensor, /*write=*/false);
  }
  for (const Tensor& tensor : {v.out, v.logsumexp}) add_accesses(accesses, tensor, !backward);
  if (v.problem.dropout > 0.0) {
    for (const Tensor& tensor : {v.seed, v.offset}) add_accesses(accesses, tensor, !backward);
  }
  for (const Tensor& tensor : {v.grad_query, v.grad_key, v.grad_value}) add_accesses(accesses, tensor, /*write=*/true);
  return accesses;
}

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(-1))));
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Results forward(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& bias,
                const OptionalTensor& cumulative_q, const OptionalTensor& cumulative_k, c10::SymInt longest_q,
                c10::SymInt longest_k, bool with_logsumexp, double dropout, bool causal, bool /*return_debug_mask*/,
                std::optional<double> scale) {
  const c10::cuda::CUDAGuard guard(query.device());
  Views v;
  v.problem = {query,
               key,
               value,
               defined_or_none(cumulative_q),
               defined_or_none(cumulative_k),
               longest_q.expect_int(),
               longest_k.expect_int(),
               dropout,
               scale_of(query, scale)};
  set_bias(v.problem, defined_or_none(bias));
  const Problem& p = v.problem;
  check(p, causal);
  v.out = empty_with_order_of(query, p.out_sizes());
  if (with_logsumexp) {
    std::vector<int64_t> sizes = p.out_sizes();
    sizes.back() = 1;
    v.logsumexp = at::empty(sizes, query.options().dtype(at::kFloat));
  }
  v.seed = at::empty({}, query.options().dtype(at::kLong));
  v.offset = at::empty({}, query.options().dtype(at::kLong));

  Work work;
  work.name = "cuDNN's attention, forward";
  std::optional<at::PhiloxCudaState> random;
  if (dropout > 0.0) {
    auto* const generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
        std::nullopt, at::globalContext().defaultGenerator(query.device()));
    const std::lock_guard<std::mutex> lock(generator->mutex_);
    random = generator->philox_cuda_state(static_cast<uint64_t>(p.batches() * p.heads() * p.longest_q * p.longest_k));
    add_accesses(work.accesses, *random);
  }
  for (const Tensor& tensor : {query, key, value, v.out}) check_alignment(tensor, "a tensor");
  const std::vector<Access> tensors = accesses_of(v, /*backward=*/false);
  work.accesses.insert(work.accesses.end(), tensors.begin(), tensors.end());
  work.run = [host = viewed(v), random] {
    if (random) {
      const auto [seed, offset] = unpacked(*random);
      *host.seed.mutable_data_ptr<int64_t>() = static_cast<int64_t>(seed);
      *host.offset.mutable_data_ptr<int64_t>() = static_cast<int64_t>(offset);
    }
    for_each_head(host.problem.batches(), host.problem.heads(),
                  [&](int64_t batch, int64_t h) { attention_forward(head_of(host, batch, h)); });
  };
  enqueue(current_stream(query.device()), std::move(work));
  return {v.out, v.logsumexp, p.cumulative_q, p.cumulative_k, longest_q, longest_k, v.seed, v.offset, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                            const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                                            const Tensor& seed, const Tensor& offset, const Tensor& bias,
                                            const Tensor& cumulative_q, const Tensor& cumulative_k,
                                            c10::SymInt longest_q, c10::SymInt longest_k, double dropout, bool causal,
                                            std::optional<double> scale) {
  const c10::cuda::CUDAGuard guard(query.device());
  Views v;
  v.problem = {query,
               key,
               value,
               cumulative_q,
               cumulative_k,
               longest_q.expect_int(),
               longest_k.expect_int(),
               dropout,
               scale_of(query, scale)};
  set_bias(v.problem, bias);
  check(v.problem, causal);
  v.out = out;
  v.logsumexp = logsumexp;
  v.grad_out = grad;
  if (dropout > 0.0) {  // otherwise they mean nothing
    v.seed = seed;
    v.offset = offset;
  }
  v.grad_query = at::empty_like(query);
  v.grad_key = at::empty_like(key);
  v.grad_value = at::empty_like(value);
  for (const Tensor& tensor : {query, key, value, out, grad, logsumexp}) check_alignment(tensor, "a tensor");
  check_alignment(v.seed, "the seed");
  check_alignment(v.offset, "the offset");
  Work work;
  work.name = "cuDNN's attention, backward";
  work.accesses = accesses_of(v, /*backward=*/true);
  work.run = [host = viewed(v)] {
    for_each_head(host.problem.batches(), host.problem.heads(),
                  [&](int64_t batch, int64_t h) { attention_backward(head_of(host, batch, h)); });
  };
  enqueue(current_stream(query.device()), std::move(work));
  return {v.grad_query, v.grad_key, v.grad_value};
}

}  // namespace

void replace_cudnn_attention(torch::Library& aten) {
  aten.impl("_cudnn_attention_forward", TORCH_FN(forward));
  aten.impl("_cudnn_attention_backward", TORCH_FN(backward));
}

}  // namespace null_device
