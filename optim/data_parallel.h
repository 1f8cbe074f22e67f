// Data-parallel training: one flat buffer of gradients, reduced once per optimizer step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// The gradients of a model, their accumulation over micro-steps, and their mean over ranks.
///
/// Every .grad is a view into one flat buffer (fp32; fp64 for fp64 parameters), from construction on: autograd adds
/// into it, in fp32 also where the weights are fp16 or bf16. Gradients are zeroed in place and never set to none, so a
/// parameter that took no part in the loss has a gradient of zeros: its moments decay and weight decay applies. The
/// reduction is a sum over ranks divided by their number; division by accumulation steps belongs to the loss.
/// Parameters lie in the buffer last first, as backward finishes them.
///
///   for (micro...) {
///     parallel.expect_reduction(micro + 1 == accumulation_steps);
///     scaler.scale(loss).backward();
///   }
///   parallel.finish();
///   scaler.step(optimizer, lr); scaler.update();
///   parallel.zero_gradients();
class DataParallel {
 public:
  /// `group` null: one process. `parameters` on one device, of one dtype per bucket as they come; every rank gives the
  /// same list. Throws c10::Error when there are none or their devices differ.
  DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<NamedParameter>& parameters,
               int64_t bucket_bytes = kDefaultBucketBytes);

  /// Rank 0's parameters on every rank. Call it after initialisation or loading, before the first step.
  void broadcast_parameters();

  /// Tells before a backward whether it is the step's last one, whose gradients finish() will reduce.
  void expect_reduction(bool last_micro_step) { reduction_expected_ = last_micro_step; }

  /// Replaces the gradients by their mean over ranks, on every rank the same bits. Throws c10::Error when
  /// expect_reduction(true) was not called since the last finish(), or when a .grad was replaced (optimizer.zero_grad()
  /// sets it to none: use zero_gradients()).
  void finish();

  /// All gradients to zero, one memset per dtype.
  void zero_gradients();

  /// The flat buffers: one, or two where fp64 and other parameters mix. Padding between tensors is zero.
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const { return buffers_; }
  [[nodiscard]] int rank() const { return group_ ? group_->getRank() : 0; }
  [[nodiscard]] int world_size() const { return group_ ? group_->getSize() : 1; }

 private:
  static constexpr int64_t kDefaultBucketBytes = 25 * 1024 * 1024;  // as in torch's DistributedDataParallel

  struct Entry {
    NamedParameter parameter;
    at::Tensor grad;  // the view
  };

  void check_views() const;

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  std::vector<Entry> entries_;
  std::vector<at::Tensor> buffers_;
  std::vector<at::Tensor> buckets_;  // slices of buffers_, in the order of reduction
  bool reduction_expected_ = false;
};

}  // namespace bert
