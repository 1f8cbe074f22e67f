#include "cuda_ext/multi_tensor/cpu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

namespace bert::ops::cpu {
namespace {

/// 128 KiB of fp32: the four arrays of a chunk fit in a second-level cache.
constexpr int64_t kChunkElements = 32768;
/// Lamb updates a batch of tensors while the moments of the next batch are computed. The data of the second visit (12
/// bytes per element of two batches) should still be in the last-level cache.
constexpr int64_t kBatchElements = 1048576;

/// Calls task(i) for all i below count on all threads, which meet once, at the end. A free thread takes the next i, so
/// task(i) may wait for an earlier one.
template <class Task>
void for_each_task(size_t count, const Task& task) {
  std::atomic<size_t> next = 0;
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), static_cast<int64_t>(count));
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < count; i = next++) task(i);
  });
}

template <class T>
int64_t count(const std::vector<T>& values) {
  return static_cast<int64_t>(values.size());
}

double number(const at::Tensor& scalar) {
  return scalar.scalar_type() == at::kDouble ? *scalar.const_data_ptr<double>() : *scalar.const_data_ptr<float>();
}

double number_or(const at::Tensor& scalar, double otherwise) { return scalar.defined() ? number(scalar) : otherwise; }

class CpuList : public MultiTensor::Backend {
 public:
  CpuList(const std::vector<at::Tensor>& tensors, const OptimKernels& kernels)
      : kernels_(kernels), norm_(at::empty({}, at::kDouble)), norms_(at::empty({count(tensors)}, at::kDouble)) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      append_chunks(static_cast<int64_t>(i), tensors[i].numel(), kChunkElements, chunks_);
    }
    for (const at::Tensor& tensor : tensors) types_.push_back(element_type(tensor));
    data_.resize(tensors.size());
    sums_.resize(chunks_.size());
    finite_.resize(chunks_.size());
  }

  /// The sum of the squares of all elements.
  double sum_of_squares(const std::vector<at::Tensor>& tensors) {
    place(tensors);
    for_each_task(chunks_.size(),
                  [&](size_t c) { sums_[c] = kernels_.sum_of_squares(at(c), type(c), chunks_[c].size); });
    double total = 0.0;
    for (const double sum : sums_) total += sum;
    return total;
  }

  at::Tensor norm(const std::vector<at::Tensor>& tensors) override {
    *norm_.mutable_data_ptr<double>() = std::sqrt(sum_of_squares(tensors));
    return norm_;
  }

  at::Tensor norms(const std::vector<at::Tensor>& tensors) override {
    sum_of_squares(tensors);
    const std::span<double> norms(norms_.mutable_data_ptr<double>(), data_.size());
    add_by_tensor(norms);
    for (double& norm : norms) norm = std::sqrt(norm);
    return norms_;
  }

  /// The sums of squares of each tensor, after sum_of_squares().
  void add_by_tensor(std::span<double> squares) const {
    std::fill(squares.begin(), squares.end(), 0.0);
    for (size_t c = 0; c < chunks_.size(); ++c) squares[static_cast<size_t>(chunks_[c].tensor)] += sums_[c];
  }

  void unscale_(const std::vector<at::Tensor>& tensors, const at::Tensor& inv_scale,
                const at::Tensor& found_inf) override {
    place(tensors);
    const auto factor = static_cast<float>(number(inv_scale));
    for_each_task(chunks_.size(),
                  [&](size_t c) { finite_[c] = kernels_.scale(at(c), type(c), chunks_[c].size, factor) ? 1 : 0; });
    if (std::find(finite_.begin(), finite_.end(), 0) != finite_.end()) *found_inf.mutable_data_ptr<float>() = 1.0F;
  }

 private:
  void place(const std::vector<at::Tensor>& tensors) {
    for (size_t i = 0; i < tensors.size(); ++i) data_[i] = static_cast<std::byte*>(tensors[i].mutable_data_ptr());
  }
  [[nodiscard]] ElementType type(size_t c) const { return types_[static_cast<size_t>(chunks_[c].tensor)]; }
  [[nodiscard]] std::byte* at(size_t c) const {
    return data_[static_cast<size_t>(chunks_[c].tensor)] + chunks_[c].begin * (type(c) == ElementType::kFloat ? 4 : 2);
  }

  const OptimKernels& kernels_;
  std::vector<ElementType> types_;  // by tensor
  std::vector<std::byte*> data_;    // by tensor
  std::vector<ChunkEntry> chunks_;
  std::vector<double> sums_;     // by chunk
  std::vector<uint8_t> finite_;  // by chunk
  at::Tensor norm_, norms_;
};

class CpuStep : public OptimizerStep::Backend {
 public:
  CpuStep(UpdateRule rule, const std::vector<OptimizerTensors>& groups, const OptimKernels& kernels)
      : rule_(rule), kernels_(kernels), grads_(all_grads(groups), kernels), scalars_(groups.size()) {
    for (size_t g = 0; g < groups.size(); ++g) {
      for (const at::Tensor& param : groups[g].params) {
        OptimEntry& entry =
            entries_.emplace_back(OptimEntry{.group = static_cast<int32_t>(g), .first_chunk = count(chunks_)});
        entry.chunks = append_chunks(count(entries_) - 1, param.numel(), kChunkElements, chunks_);
      }
    }
    norms_.resize(chunks_.size());
    rates_.resize(entries_.size());
    squares_.resize(entries_.size());
    multipliers_.resize(entries_.size());
    pending_ = std::vector<std::atomic<int64_t>>(entries_.size());
    if (rule != UpdateRule::kAdamw) schedule_lamb();
  }

  void run(const std::vector<OptimizerTensors>& groups, const std::vector<UpdateOptions>& options,
           const StepTensors& scalars) override {
    place(groups);
    const double inv_scale = number_or(scalars.inv_scale, 1.0),
                 norm = std::sqrt(grads_.sum_of_squares(all_grads(groups))) * inv_scale;
    const auto grad_norm = static_cast<float>(norm);
    const bool skip = !std::isfinite(grad_norm) || number_or(scalars.found_inf, 0.0) != 0.0;
    *scalars.grad_norm.mutable_data_ptr<float>() = grad_norm;
    *scalars.skipped.mutable_data_ptr<float>() = skip ? 1.0F : 0.0F;
    if (skip) return;
    const int64_t step = ++*scalars.step.mutable_data_ptr<int64_t>();
    for (size_t g = 0; g < options.size(); ++g) {
      scalars_[g] = optim_scalars(options[g], number_or(scalars.lr, options[g].lr), inv_scale, norm, step);
    }
    grads_.add_by_tensor(squares_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      const auto g = static_cast<size_t>(entries_[i].group);
      multipliers_[i] = tensor_multiplier(options[g], scalars_[g].multiplier, squares_[i]);
    }
    if (rule_ == UpdateRule::kAdamw) {
      for_each_task(chunks_.size(), [&](size_t c) { kernels_.adamw(pointers(chunks_[c]), scalars_of(chunks_[c])); });
    } else {
      lamb(options);
    }
  }

 private:
  /// One visit of a chunk by LAMB, or by StableAdamW: the first visit computes the moments and the norms of its tensor, the second one
  /// updates.
  struct Visit {
    size_t chunk;
    bool update;
  };
  static constexpr int64_t kRateKnown = -1;

  void place(const std::vector<OptimizerTensors>& groups) {
    auto entry = entries_.begin();
    for (const OptimizerTensors& group : groups) {
      for (size_t i = 0; i < group.params.size(); ++i, ++entry) {
        entry->param = group.params[i].mutable_data_ptr<float>();
        entry->exp_avg = group.exp_avg[i].mutable_data_ptr<float>();
        entry->exp_avg_sq = group.exp_avg_sq[i].mutable_data_ptr<float>();
        entry->ema = group.ema[i].defined() ? group.ema[i].mutable_data_ptr<float>() : nullptr;
        entry->grad = group.grads[i].const_data_ptr<float>();
        if (const at::Tensor& copy = group.copies[i]; copy.defined()) {
          entry->copy = copy.mutable_data_ptr();
          entry->copy_type = copy.scalar_type() == at::kHalf ? CopyType::kHalf : CopyType::kBFloat16;
        }
      }
    }
  }

  /// The moments of a batch of tensors come before the updates of the batch before it.
  void schedule_lamb() {
    std::vector<Visit> updates;
    for (size_t first = 0, last = 0; first < entries_.size(); first = last) {
      std::vector<Visit> next;
      for (int64_t elements = 0; last < entries_.size() && elements < kBatchElements; ++last) {
        const OptimEntry& entry = entries_[last];
        for (int64_t c = entry.first_chunk; c < entry.first_chunk + entry.chunks; ++c) {
          const auto chunk = static_cast<size_t>(c);
          visits_.push_back({.chunk = chunk, .update = false});
          next.push_back({.chunk = chunk, .update = true});
          elements += chunks_[chunk].size;
        }
      }
      visits_.insert(visits_.end(), updates.begin(), updates.end());
      updates = std::move(next);
    }
    visits_.insert(visits_.end(), updates.begin(), updates.end());
  }

  void lamb(const std::vector<UpdateOptions>& options) {
    const auto moments = rule_ == UpdateRule::kLamb ? kernels_.lamb_moments : kernels_.stable_moments;
    for (size_t i = 0; i < entries_.size(); ++i) pending_[i].store(entries_[i].chunks, std::memory_order_relaxed);
    for_each_task(visits_.size(), [&](size_t v) {
      const size_t c = visits_[v].chunk;
      const ChunkEntry& chunk = chunks_[c];
      const auto tensor = static_cast<size_t>(chunk.tensor);
      std::atomic<int64_t>& pending = pending_[tensor];
      if (visits_[v].update) {
        while (pending.load(std::memory_order_acquire) != kRateKnown) std::this_thread::yield();
        kernels_.lamb_apply(pointers(chunk), scalars_of(chunk), rates_[tensor]);
        return;
      }
      norms_[c] = moments(pointers(chunk), scalars_of(chunk));
      if (pending.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      rates_[tensor] = rate_of(entries_[tensor], options);
      pending.store(kRateKnown, std::memory_order_release);
    });
  }

  [[nodiscard]] float rate_of(const OptimEntry& entry, const std::vector<UpdateOptions>& options) const {
    const auto group = static_cast<size_t>(entry.group);
    LambNorms sum{};
    for (int64_t c = entry.first_chunk; c < entry.first_chunk + entry.chunks; ++c) {
      sum.param += norms_[static_cast<size_t>(c)].param;
      sum.update += norms_[static_cast<size_t>(c)].update;
    }
    if (rule_ == UpdateRule::kStableAdamw) {
      const ChunkEntry& last = chunks_[static_cast<size_t>(entry.first_chunk + entry.chunks - 1)];
      return stable_rate(scalars_[group].lr, sum.update, last.begin + last.size);
    }
    return lamb_rate(scalars_[group].lr, options[group], sum.param, sum.update);
  }

  [[nodiscard]] const OptimEntry& entry_of(const ChunkEntry& chunk) const {
    return entries_[static_cast<size_t>(chunk.tensor)];
  }
  [[nodiscard]] OptimScalars scalars_of(const ChunkEntry& chunk) const {
    OptimScalars scalars = scalars_[static_cast<size_t>(entry_of(chunk).group)];
    scalars.multiplier = multipliers_[static_cast<size_t>(chunk.tensor)];
    return scalars;
  }
  [[nodiscard]] OptimChunk pointers(const ChunkEntry& chunk) const {
    const OptimEntry& entry = entry_of(chunk);
    return {.param = entry.param + chunk.begin,
            .exp_avg = entry.exp_avg + chunk.begin,
            .exp_avg_sq = entry.exp_avg_sq + chunk.begin,
            .ema = entry.ema == nullptr ? nullptr : entry.ema + chunk.begin,
            .grad = entry.grad + chunk.begin,
            .copy = entry.copy == nullptr ? nullptr : static_cast<uint16_t*>(entry.copy) + chunk.begin,
            .copy_type = entry.copy_type,
            .n = chunk.size};
  }

  UpdateRule rule_;
  const OptimKernels& kernels_;
  CpuList grads_;
  std::vector<OptimScalars> scalars_;  // by group
  std::vector<OptimEntry> entries_;
  std::vector<ChunkEntry> chunks_;
  std::vector<Visit> visits_;                  // Lamb's, in their order
  std::vector<LambNorms> norms_;               // by chunk
  std::vector<float> rates_;                   // by tensor
  std::vector<double> squares_;                // by tensor: of the gradients
  std::vector<float> multipliers_;             // by tensor
  std::vector<std::atomic<int64_t>> pending_;  // by tensor: chunks whose norms are missing, or kRateKnown
};

}  // namespace

std::unique_ptr<MultiTensor::Backend> make_list(const std::vector<at::Tensor>& tensors, const OptimKernels& kernels) {
  return std::make_unique<CpuList>(tensors, kernels);
}

std::unique_ptr<OptimizerStep::Backend> make_step(UpdateRule rule, const std::vector<OptimizerTensors>& groups,
                                                  const OptimKernels& kernels) {
  return std::make_unique<CpuStep>(rule, groups, kernels);
}

}  // namespace bert::ops::cpu
