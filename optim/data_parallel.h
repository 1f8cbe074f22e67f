// Data-parallel training: one flat buffer of gradients, reduced bucket by bucket while the last backward runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/optimizer.h"

namespace torch::autograd {
struct Node;
}

namespace bert {

/// The dtype in which gradients are sent. fp16 and bf16 halve the traffic. Each rank's share is divided by the number
/// of ranks, if a mean is asked for, and then rounded. The sum is rounded at every hop, as with torch's
/// fp16_compress_hook and bf16_compress_hook.

struct DataParallelOptions {
  int64_t bucket_bytes = 25 * 1024 * 1024;  // of gradients, before compression; as in torch's DistributedDataParallel
  GradientCompression compression = GradientCompression::kNone;
  bool mean_over_ranks = true;   // false: the sum over ranks, for losses that are shares of the global batch
  std::vector<int> owners = {};  // for each parameter the rank that gets its gradient (optim/sharded_optimizer.h);
                                 // empty: all ranks get all
};

/// The gradients of a model, their accumulation over micro-steps, and their mean, or sum, over ranks.
///
/// From construction on every .grad is a view into one flat buffer (fp32; fp64 for fp64 parameters). Autograd adds into
/// it, in fp32 even if the weights are fp16 or bf16. Gradients are zeroed in place and never set to none, so a
/// parameter that took no part in the loss has a gradient of zeros: its moments decay and weight decay applies. A
/// frozen parameter (no requires_grad) gets no gradient and does not change.
/// The reduction is a sum over ranks, divided by their number unless mean_over_ranks is off. Division by accumulation
/// steps belongs to the loss. With one process, DataParallel(nullptr, parameters) gives fp16 and bf16 weights fp32
/// gradients. Gradients that meet within one backward, those of the uses of a tied weight, are added by autograd in the
/// dtype of the weights.
///
/// Note [Order of the buckets]
/// Parameters lie in the buffer in reverse order, because backward finishes the last ones first. The buffer is cut into
/// buckets. A bucket is full when every parameter in it has its gradient; it is then reduced while backward continues.
/// Ranks must issue the same collectives in the same order, but may finish gradients in different orders, so a full
/// bucket waits for the buckets before it. If a parameter gets no gradient in the last backward (it is unused, or only
/// earlier micro-steps used it), its bucket and all later ones are reduced in finish().
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
  /// If `group` is null, there is one process. `parameters` are on one device, and a bucket holds one dtype; every rank
  /// passes the same list. Throws c10::Error if there are no parameters or all are frozen, if their devices differ, if
  /// one occurs twice, or if an option is out of range.
  DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<NamedParameter>& parameters,
               DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Copies rank 0's parameters to every rank. Call it after initialisation or loading, before the first step.
  void broadcast_parameters();

  /// The first parameter whose bits differ from rank 0's on some rank, with these ranks; nothing if all agree. A
  /// collective: every rank calls it and gets the same answer. Reads every parameter on the host.
  [[nodiscard]] std::optional<std::string> first_difference() const;

  /// Call it before each backward. `last_micro_step`: this is the last backward of the step, during which buckets are
  /// reduced; until finish() the parameters' nodes of autograd have hooks of this object.
  void expect_reduction(bool last_micro_step);

  /// Replaces the gradients by their mean, or sum, over ranks. Every rank (or each gradient's owner) gets the same
  /// bits. Throws c10::Error if expect_reduction(true) was not called since the last finish(), if a .grad was replaced
  /// (optimizer.zero_grad() sets it to none: use zero_gradients()), or if a frozen parameter has a gradient.
  void finish();

  /// Sets all gradients to zero, with one memset a dtype.
  void zero_gradients();

  /// Milliseconds from the end of the last backward until its gradients were reduced: the communication that
  /// computation did not hide. Waits for the device. 0 for one process and before the first finish().
  [[nodiscard]] double exposed_ms() const;

  /// The flat buffers: one, or two if some parameters are fp64 and some are not. Padding between tensors is zero.
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const { return buffers_; }
  [[nodiscard]] int rank() const { return group_ ? group_->getRank() : 0; }
  [[nodiscard]] int world_size() const { return group_ ? group_->getSize() : 1; }

 private:
  struct Hook;
  static constexpr int kAllRanks = -1;

  struct Entry {
    NamedParameter parameter;
    at::Tensor grad;                                   // the view into the buffer
    size_t first_bucket = 0, last_bucket = 0;          // the buckets that it lies in
    bool ready = false;                                // has its gradient in this backward
    std::shared_ptr<torch::autograd::Node> node = {};  // autograd's, with a hook, while a reduction is expected
    uintptr_t hook = 0;
  };
  struct Bucket {
    at::Tensor gradients;   // a slice of a buffer
    at::Tensor compressed;  // the sent tensor; undefined without compression
    int root = kAllRanks;   // the rank that gets the sum
    int64_t parameters = 0, pending = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };

  /// Places the parameters of one root from `begin` on and cuts them into buckets. Returns the end.
  int64_t add_run(const at::Tensor& buffer, int64_t begin, std::span<const NamedParameter> parameters, int root);
  void check_views() const;
  void add_hooks();
  void remove_hooks();
  void gradient_ready(size_t entry);
  void launch(Bucket& bucket);
  void complete(Bucket& bucket);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  DataParallelOptions options_;
  std::vector<NamedParameter> parameters_, frozen_;  // all parameters; those without requires_grad
  std::vector<Entry> entries_;                       // all parameters but frozen ones, in the order of the buffers
  std::vector<at::Tensor> buffers_;
  std::vector<Bucket> buckets_;  // in the order of their reduction
  size_t next_bucket_ = 0;       // next bucket to be launched
  bool reduction_expected_ = false;
  double exposed_ms_ = 0;                               // on the CPU
  std::optional<c10::Event> wait_begins_, wait_ended_;  // on other devices
};

}  // namespace bert
