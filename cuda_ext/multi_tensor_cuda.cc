// The CUDA side of multi_tensor.h: builds the tables of multi_tensor_launchers.h in device memory, once for a list of
// tensors, and launches. A step copies nothing to the device and allocates nothing, so that a graph can capture it;
// only options that changed are copied again.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstring>

#include "cuda_ext/launch.h"
#include "cuda_ext/multi_tensor_backend.h"
#include "cuda_ext/multi_tensor_launchers.h"

namespace bert::cuda {
namespace {

using at::Tensor;
using ops::OptimizerStep;
using ops::OptimizerTensors;
using ops::StepTensors;
using ops::TensorList;

constexpr uintptr_t kWidth = 4;  // elements of a vector

bool aligned(const void* pointer, size_t element_bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % (kWidth * element_bytes) == 0;
}

Tensor bytes_like(const Tensor& like, size_t bytes) {
  return at::zeros({static_cast<int64_t>(bytes)}, like.options().dtype(at::kByte));
}

template <class T>
T* pointer(const Tensor& bytes) {
  return static_cast<T*>(bytes.mutable_data_ptr());
}

/// Plain structs as bytes in device memory.
template <class T>
Tensor upload(const std::vector<T>& values, const Tensor& like) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
  const Tensor host = at::empty({bytes}, at::kByte);
  if (bytes > 0) std::memcpy(host.mutable_data_ptr(), values.data(), static_cast<size_t>(bytes));
  return host.to(like.device());
}

/// The table of a list and the memory between its blocks.
class Table {
 public:
  explicit Table(const std::vector<Tensor>& tensors) {
    std::vector<ChunkEntry> chunks;
    for (const Tensor& tensor : tensors) {
      ListEntry entry{.data = tensor.mutable_data_ptr(),
                      .type = type_of(tensor),
                      .aligned = aligned(tensor.const_data_ptr(), tensor.element_size()),
                      .first_chunk = static_cast<int64_t>(chunks.size())};
      entry.chunks = append_chunks(static_cast<int64_t>(entries.size()), tensor.numel(), kernels::kOptimChunk, chunks);
      entries.push_back(entry);
    }
    const Tensor& like = tensors.front();
    entries_ = upload(entries, like);
    chunks_ = upload(chunks, like);
    chunk_sums_ = bytes_like(like, chunks.size() * sizeof(double));
    tensor_sums_ = bytes_like(like, entries.size() * sizeof(double));
    tickets_ = bytes_like(like, (entries.size() + 1) * sizeof(unsigned));
    table = {.tensors = static_cast<int64_t>(entries.size()),
             .chunks = static_cast<int64_t>(chunks.size()),
             .entries = pointer<ListEntry>(entries_),
             .chunk = pointer<ChunkEntry>(chunks_)};
    workspace = {.chunk_sums = pointer<double>(chunk_sums_),
                 .tensor_sums = pointer<double>(tensor_sums_),
                 .tickets = pointer<unsigned>(tickets_)};
  }

  std::vector<ListEntry> entries;
  kernels::TensorTable table;
  kernels::NormWorkspace workspace;

 private:
  static ElementType type_of(const Tensor& tensor) {
    if (tensor.scalar_type() == at::kHalf) return ElementType::kHalf;
    return tensor.scalar_type() == at::kBFloat16 ? ElementType::kBFloat16 : ElementType::kFloat;
  }

  Tensor entries_, chunks_, chunk_sums_, tensor_sums_, tickets_;
};

class CudaList : public TensorList::Backend {
 public:
  explicit CudaList(const std::vector<Tensor>& tensors)
      : device_(tensors.front().device()),
        table_(tensors),
        norm_(at::empty({}, tensors.front().options().dtype(at::kDouble))),
        norms_(at::empty({static_cast<int64_t>(tensors.size())}, norm_.options())) {}

  const Tensor& norm() override { return compute(), norm_; }
  const Tensor& norms() override { return compute(), norms_; }

  void unscale_(const Tensor& inv_scale, const Tensor& found_inf) override {
    const c10::cuda::CUDAGuard guard(device_);
    kernels::multi_tensor_unscale(table_.table, inv_scale.const_data_ptr<float>(), found_inf.mutable_data_ptr<float>(),
                                  stream_of(norm_));
  }

 private:
  void compute() {
    const c10::cuda::CUDAGuard guard(device_);
    kernels::multi_tensor_norm(table_.table, table_.workspace, norm_.mutable_data_ptr<double>(),
                               norms_.mutable_data_ptr<double>(), stream_of(norm_));
  }

  at::Device device_;
  Table table_;
  Tensor norm_, norms_;
};

kernels::ScalarInput input(const Tensor& scalar) {
  if (!scalar.defined()) return {};
  const bool is_double = scalar.scalar_type() == at::kDouble;
  TORCH_CHECK_VALUE(scalar.is_cuda() && (is_double || scalar.scalar_type() == at::kFloat),
                    "OptimizerStep::run: got a scalar of ", scalar.scalar_type(), " on ", scalar.device(),
                    ", expected fp32 or fp64 on the device of the parameters");
  return {.data = scalar.const_data_ptr(), .is_double = is_double};
}

class CudaStep : public OptimizerStep::Backend {
 public:
  CudaStep(UpdateRule rule, const std::vector<OptimizerTensors>& groups)
      : grads_(all_grads(groups)), like_(first_grad(groups)) {
    std::vector<OptimEntry> entries;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].params.size(); ++i) {
        entries.push_back(entry_of(groups[g], g, i, grads_.entries[entries.size()]));
      }
    }
    entries_ = upload(entries, like_);
    options_ = bytes_like(like_, groups.size() * sizeof(UpdateOptions));
    scalars_ = bytes_like(like_, groups.size() * sizeof(OptimScalars));
    update_sums_ = bytes_like(like_, 2 * static_cast<size_t>(grads_.table.chunks) * sizeof(double));
    rates_ = bytes_like(like_, entries.size() * sizeof(float));
    table_ = {.rule = rule,
              .groups = static_cast<int64_t>(groups.size()),
              .grads = grads_.table,
              .norms = grads_.workspace,
              .entries = pointer<OptimEntry>(entries_),
              .options = pointer<UpdateOptions>(options_),
              .scalars = pointer<OptimScalars>(scalars_),
              .update_sums = pointer<double>(update_sums_),
              .rates = pointer<float>(rates_)};
  }

  void run(const std::vector<UpdateOptions>& options, const StepTensors& scalars) override {
    const c10::cuda::CUDAGuard guard(like_.device());
    if (options != uploaded_) {
      options_.copy_(upload(options, like_));
      uploaded_ = options;
    }
    kernels::optimizer_step(table_,
                            {.lr = input(scalars.lr),
                             .inv_scale = input(scalars.inv_scale),
                             .found_inf = input(scalars.found_inf),
                             .step = scalars.step.mutable_data_ptr<int64_t>(),
                             .grad_norm = scalars.grad_norm.mutable_data_ptr<float>(),
                             .skipped = scalars.skipped.mutable_data_ptr<float>()},
                            stream_of(like_));
  }

 private:
  static std::vector<Tensor> all_grads(const std::vector<OptimizerTensors>& groups) {
    std::vector<Tensor> grads;
    for (const OptimizerTensors& group : groups) grads.insert(grads.end(), group.grads.begin(), group.grads.end());
    return grads;
  }
  static Tensor first_grad(const std::vector<OptimizerTensors>& groups) { return all_grads(groups).front(); }

  static OptimEntry entry_of(const OptimizerTensors& group, size_t g, size_t i, const ListEntry& list_entry) {
    OptimEntry entry{.param = group.params[i].mutable_data_ptr<float>(),
                     .exp_avg = group.exp_avg[i].mutable_data_ptr<float>(),
                     .exp_avg_sq = group.exp_avg_sq[i].mutable_data_ptr<float>(),
                     .grad = group.grads[i].const_data_ptr<float>(),
                     .group = static_cast<int32_t>(g),
                     .first_chunk = list_entry.first_chunk,
                     .chunks = list_entry.chunks};
    entry.aligned = list_entry.aligned && aligned(entry.param, sizeof(float)) &&
                    aligned(entry.exp_avg, sizeof(float)) && aligned(entry.exp_avg_sq, sizeof(float));
    if (const Tensor& copy = group.copies[i]; copy.defined()) {
      entry.copy = copy.mutable_data_ptr();
      entry.copy_type = copy.scalar_type() == at::kHalf ? CopyType::kHalf : CopyType::kBFloat16;
      entry.aligned = entry.aligned && aligned(entry.copy, copy.element_size());
    }
    return entry;
  }

  Table grads_;
  Tensor like_;
  Tensor entries_, options_, scalars_, update_sums_, rates_;
  std::vector<UpdateOptions> uploaded_;
  kernels::OptimTable table_;
};

const bool kRegistered = [] {
  ops::cuda_multi_tensor() = {
      .list = [](const std::vector<Tensor>& tensors) -> std::unique_ptr<TensorList::Backend> {
        const c10::cuda::CUDAGuard guard(tensors.front().device());
        return std::make_unique<CudaList>(tensors);
      },
      .step = [](UpdateRule rule, const std::vector<OptimizerTensors>& groups)
          -> std::unique_ptr<OptimizerStep::Backend> { return std::make_unique<CudaStep>(rule, groups); },
      .learning_rate =
          [](const LrSchedule& schedule, const Tensor& applied_steps, const Tensor& rate) {
            const c10::cuda::CUDAGuard guard(rate.device());
            kernels::learning_rate(schedule, applied_steps.const_data_ptr<int64_t>(), rate.mutable_data_ptr<float>(),
                                   stream_of(rate));
          }};
  return true;
}();

}  // namespace
}  // namespace bert::cuda
