// multi_tensor.h on CUDA: keeps the tables of multi_tensor_launchers.h in device memory and launches. A step with the
// tensors and options of the step before copies nothing to the device and allocates nothing, so a graph can capture it.
// Changed data are copied again (Note [Tensors that move]).
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>

#include <cstring>
#include <utility>

#include "cuda_ext/kernels/launch.h"
#include "cuda_ext/kernels/multi_tensor_launchers.h"
#include "cuda_ext/multi_tensor/backend.h"

namespace bert::cuda {
namespace {

using at::Tensor;
using ops::MultiTensor;
using ops::OptimizerStep;
using ops::OptimizerTensors;
using ops::StepTensors;

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

/// Plain structs and their copy in device memory. A copy to the device waits for nothing: it runs in stream order, and
/// torch reuses its pinned block only after it.
template <class T>
class Mirror {
 public:
  Mirror(std::vector<T> values, const Tensor& like)
      : values_(std::move(values)),
        on_device_(at::empty({static_cast<int64_t>(values_.size() * sizeof(T))}, like.options().dtype(at::kByte))) {
    upload(values_);
  }

  /// The number of values must be as before.
  void assign(std::vector<T> values) {
    if (values == values_) return;
    upload(values);
    values_ = std::move(values);
  }

  [[nodiscard]] const std::vector<T>& values() const { return values_; }
  [[nodiscard]] const T* on_device() const { return static_cast<const T*>(on_device_.const_data_ptr()); }

 private:
  void upload(const std::vector<T>& values) {
    if (values.empty()) return;
    TORCH_CHECK(c10::cuda::currentStreamCaptureStatusMayInitCtx() == c10::cuda::CaptureStatus::None,
                "optimizer: tensors or options are not those of the step before, and a CUDA graph is being captured. "
                "Take one step with them before the capture.");
    const Tensor pinned =
        at::empty(on_device_.sizes(), at::TensorOptions().dtype(at::kByte).pinned_memory(on_device_.is_cuda()));
    std::memcpy(pinned.mutable_data_ptr(), values.data(), on_device_.nbytes());
    on_device_.copy_(pinned, /*non_blocking=*/true);
  }

  std::vector<T> values_;
  Tensor on_device_;
};

/// The table of a list and the memory between its blocks.
class Table {
 public:
  explicit Table(const std::vector<Tensor>& tensors) : Table(tensors, split(tensors)) {}

  /// Uses the current addresses of the tensors.
  void place(const std::vector<Tensor>& tensors) { entries_.assign(entries_of(tensors, entries_.values())); }

  [[nodiscard]] const std::vector<ListEntry>& entries() const { return entries_.values(); }

  kernels::TensorTable table;
  kernels::NormWorkspace workspace;

 private:
  /// The entries and chunks of a list.
  struct Split {
    std::vector<ListEntry> entries;  // without addresses
    std::vector<ChunkEntry> chunks;
  };

  Table(const std::vector<Tensor>& tensors, const Split& split)
      : entries_(entries_of(tensors, split.entries), tensors.front()),
        chunks_(split.chunks, tensors.front()),
        chunk_sums_(bytes_like(tensors.front(), split.chunks.size() * sizeof(double))),
        tensor_sums_(bytes_like(tensors.front(), tensors.size() * sizeof(double))),
        tickets_(bytes_like(tensors.front(), (tensors.size() + 1) * sizeof(unsigned))) {
    table = {.tensors = static_cast<int64_t>(tensors.size()),
             .chunks = static_cast<int64_t>(split.chunks.size()),
             .entries = entries_.on_device(),
             .chunk = chunks_.on_device()};
    workspace = {.chunk_sums = pointer<double>(chunk_sums_),
                 .tensor_sums = pointer<double>(tensor_sums_),
                 .tickets = pointer<unsigned>(tickets_)};
  }

  static Split split(const std::vector<Tensor>& tensors) {
    Split result;
    for (const Tensor& tensor : tensors) {
      const auto number = static_cast<int64_t>(result.entries.size());
      ListEntry entry{.first_chunk = static_cast<int64_t>(result.chunks.size())};
      entry.chunks = append_chunks(number, tensor.numel(), kernels::kOptimChunk, result.chunks);
      result.entries.push_back(entry);
    }
    return result;
  }

  static std::vector<ListEntry> entries_of(const std::vector<Tensor>& tensors, std::vector<ListEntry> entries) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      entries[i].data = tensors[i].mutable_data_ptr();
      entries[i].type = ops::element_type(tensors[i]);
      entries[i].aligned = aligned(tensors[i].const_data_ptr(), tensors[i].element_size());
    }
    return entries;
  }

  Mirror<ListEntry> entries_;
  Mirror<ChunkEntry> chunks_;
  Tensor chunk_sums_, tensor_sums_, tickets_;
};

class CudaList : public MultiTensor::Backend {
 public:
  explicit CudaList(const std::vector<Tensor>& tensors)
      : table_(tensors),
        norm_(at::empty({}, tensors.front().options().dtype(at::kDouble))),
        norms_(at::empty({static_cast<int64_t>(tensors.size())}, norm_.options())) {}

  Tensor norm(const std::vector<Tensor>& tensors) override { return compute(tensors), norm_; }
  Tensor norms(const std::vector<Tensor>& tensors) override { return compute(tensors), norms_; }

  void unscale_(const std::vector<Tensor>& tensors, const Tensor& inv_scale, const Tensor& found_inf) override {
    const c10::cuda::CUDAGuard guard(norm_.device());
    table_.place(tensors);
    kernels::multi_tensor_unscale(table_.table, inv_scale.const_data_ptr<float>(), found_inf.mutable_data_ptr<float>(),
                                  stream_of(norm_));
  }

 private:
  void compute(const std::vector<Tensor>& tensors) {
    const c10::cuda::CUDAGuard guard(norm_.device());
    table_.place(tensors);
    kernels::multi_tensor_norm(table_.table, table_.workspace, norm_.mutable_data_ptr<double>(),
                               norms_.mutable_data_ptr<double>(), stream_of(norm_));
  }

  Table table_;
  Tensor norm_, norms_;
};

kernels::ScalarInput input(const Tensor& scalar) {
  if (!scalar.defined()) return {};
  return {.data = scalar.const_data_ptr(), .is_double = scalar.scalar_type() == at::kDouble};
}

class CudaStep : public OptimizerStep::Backend {
 public:
  CudaStep(UpdateRule rule, const std::vector<OptimizerTensors>& groups)
      : grads_(all_grads(groups)),
        entries_(entries_of(groups), all_grads(groups).front()),
        options_(std::vector<UpdateOptions>(groups.size()), all_grads(groups).front()) {
    const Tensor like = all_grads(groups).front();
    scalars_ = bytes_like(like, groups.size() * sizeof(OptimScalars));
    update_sums_ = bytes_like(like, 2 * static_cast<size_t>(grads_.table.chunks) * sizeof(double));
    rates_ = bytes_like(like, entries_.values().size() * sizeof(float));
    table_ = {.rule = rule,
              .groups = static_cast<int64_t>(groups.size()),
              .grads = grads_.table,
              .norms = grads_.workspace,
              .entries = entries_.on_device(),
              .options = options_.on_device(),
              .scalars = pointer<OptimScalars>(scalars_),
              .update_sums = pointer<double>(update_sums_),
              .rates = pointer<float>(rates_)};
  }

  void run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
           const StepTensors& scalars) override {
    const c10::cuda::CUDAGuard guard(rates_.device());
    grads_.place(all_grads(groups));
    entries_.assign(entries_of(groups));
    options_.assign(options);
    kernels::optimizer_step(table_,
                            {.lr = input(scalars.lr),
                             .inv_scale = input(scalars.inv_scale),
                             .found_inf = input(scalars.found_inf),
                             .step = scalars.step.mutable_data_ptr<int64_t>(),
                             .grad_norm = scalars.grad_norm.mutable_data_ptr<float>(),
                             .skipped = scalars.skipped.mutable_data_ptr<float>()},
                            stream_of(rates_));
  }

 private:
  [[nodiscard]] std::vector<OptimEntry> entries_of(const std::vector<OptimizerTensors>& groups) const {
    std::vector<OptimEntry> entries;
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t i = 0; i < groups[g].params.size(); ++i) {
        entries.push_back(entry_of(groups[g], g, i, grads_.entries()[entries.size()]));
      }
    }
    return entries;
  }

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
    if (const Tensor& ema = group.ema[i]; ema.defined()) {
      entry.ema = ema.mutable_data_ptr<float>();
      entry.aligned = entry.aligned && aligned(entry.ema, sizeof(float));
    }
    if (const Tensor& copy = group.copies[i]; copy.defined()) {
      entry.copy = copy.mutable_data_ptr();
      entry.copy_type = copy.scalar_type() == at::kHalf ? CopyType::kHalf : CopyType::kBFloat16;
      entry.aligned = entry.aligned && aligned(entry.copy, copy.element_size());
    }
    return entry;
  }

  Table grads_;
  Mirror<OptimEntry> entries_;
  Mirror<UpdateOptions> options_;
  Tensor scalars_, update_sums_, rates_;
  kernels::OptimTable table_;
};

const bool kRegistered = [] {
  ops::cuda_multi_tensor() = {
      .list = [](const std::vector<Tensor>& tensors) -> std::unique_ptr<MultiTensor::Backend> {
        const c10::cuda::CUDAGuard guard(tensors.front().device());
        return std::make_unique<CudaList>(tensors);
      },
      .step = [](UpdateRule rule,
                 const std::vector<OptimizerTensors>& groups) -> std::unique_ptr<OptimizerStep::Backend> {
        const c10::cuda::CUDAGuard guard(all_grads(groups).front().device());
        return std::make_unique<CudaStep>(rule, groups);
      },
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
