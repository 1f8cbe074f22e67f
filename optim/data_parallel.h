// Data-parallel training: one flat buffer of gradients, reduced bucket by bucket while the last backward runs.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// What gradients are sent as. fp16 and bf16 halve the traffic; each rank's share is divided by the number of ranks
/// where a mean is asked for, then rounded, and the sum is rounded at every hop, as with torch's fp16_compress_hook and
/// bf16_compress_hook.
enum class GradientCompression { kNone, kFp16, kBf16 };

/// "none", "fp16" or "bf16". Throws c10::Error for another word.
GradientCompression parse_gradient_compression(const std::string& word);

struct DataParallelOptions {
  int64_t bucket_bytes = 25 * 1024 * 1024;  // of gradients, before compression; as in torch's DistributedDataParallel
  GradientCompression compression = GradientCompression::kNone;
  bool mean_over_ranks = true;   // false: the sum over ranks, for losses that are shares of the global batch's
  std::vector<int> owners = {};  // of each parameter: the one rank that gets its gradient (optim/sharded_optimizer.h);
                                 // empty: all ranks get all
};

/// The gradients of a model, their accumulation over micro-steps, and their mean, or sum, over ranks.
///
/// Every .grad is a view into one flat buffer (fp32; fp64 for fp64 parameters), from construction on: autograd adds
/// into it, in fp32 also where the weights are fp16 or bf16. Gradients are zeroed in place and never set to none, so a
/// parameter that took no part in the loss has a gradient of zeros: its moments decay and weight decay applies. One
/// that is frozen (no requires_grad) gets none, and stays as it is. The reduction is a sum over ranks, divided by their
/// number unless told otherwise; division by accumulation steps belongs to the loss. Without ranks,
/// DataParallel(nullptr, parameters) is what gives fp16 and bf16 weights fp32 gradients. What meets within one
/// backward, the uses of a tied weight, autograd has added up in the weights' dtype before.
///
/// Note [Order of the buckets]
/// Parameters lie in the buffer last first, as backward finishes them, and the buffer is cut into buckets. A bucket is
/// full when every parameter in it has its gradient; it is then reduced while backward goes on. Ranks must issue the
/// same collectives in the same order, but may finish gradients in different orders: a full bucket therefore waits for
/// those before it. What has no gradient in the last backward (an unused parameter, or one that only earlier
/// micro-steps used) keeps its bucket and those behind it for finish().
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
  /// same list. The parameters' post-accumulate-grad hooks are this object's as long as it lives. Throws c10::Error
  /// when there are none or all are frozen, when their devices differ, when one stands there twice, or when an option
  /// is out of range.
  DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<NamedParameter>& parameters,
               DataParallelOptions options = {});
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  /// Rank 0's parameters on every rank. Call it after initialisation or loading, before the first step.
  void broadcast_parameters();

  /// The first parameter whose bits are not those of rank 0 everywhere, and the ranks where they differ; nothing when
  /// all agree. Every rank calls it and gets the same answer. Reads every parameter on the host.
  [[nodiscard]] std::optional<std::string> first_difference() const;

  /// Tells before a backward whether it is the step's last one, during which buckets are reduced.
  void expect_reduction(bool last_micro_step);

  /// Replaces the gradients by their mean, or sum, over ranks, on every rank (or on each gradient's owner) the same
  /// bits. Throws c10::Error when expect_reduction(true) was not called since the last finish(), when a .grad was
  /// replaced (optimizer.zero_grad() sets it to none: use zero_gradients()), or when a frozen parameter has got one.
  void finish();

  /// All gradients to zero, one memset per dtype.
  void zero_gradients();

  /// Milliseconds from the end of the last backward until its gradients were reduced: communication that nothing hid.
  /// Waits for the device. 0 for one process and before the first finish().
  [[nodiscard]] double exposed_ms() const;

  /// The flat buffers: one, or two where fp64 and other parameters mix. Padding between tensors is zero.
  [[nodiscard]] const std::vector<at::Tensor>& buffers() const { return buffers_; }
  [[nodiscard]] int rank() const { return group_ ? group_->getRank() : 0; }
  [[nodiscard]] int world_size() const { return group_ ? group_->getSize() : 1; }

 private:
  struct Hook;
  static constexpr int kAllRanks = -1;

  struct Entry {
    NamedParameter parameter;
    at::Tensor grad;                           // the view
    size_t first_bucket = 0, last_bucket = 0;  // where it lies
    bool ready = false;                        // in this backward
  };
  struct Bucket {
    at::Tensor gradients;   // a slice of a buffer
    at::Tensor compressed;  // what is sent; undefined without compression
    int root = kAllRanks;   // the one rank that gets the sum
    int64_t parameters = 0, pending = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };

  /// Lays parameters of one root out from `begin` and cuts them into buckets; returns where they end.
  int64_t add_run(const at::Tensor& buffer, int64_t begin, std::span<const NamedParameter> parameters, int root);
  void check_views() const;
  void gradient_ready(size_t entry);
  void launch(Bucket& bucket);
  void complete(Bucket& bucket);

  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  DataParallelOptions options_;
  std::vector<NamedParameter> parameters_, frozen_;  // all; those without requires_grad
  std::vector<Entry> entries_;                       // of the others, in the order of the buffers
  std::vector<at::Tensor> buffers_;
  std::vector<Bucket> buckets_;  // in the order of reduction
  size_t next_bucket_ = 0;       // to be launched
  bool reduction_expected_ = false;
  double exposed_ms_ = 0;                               // on the CPU
  std::optional<c10::Event> wait_begins_, wait_ended_;  // on other devices
};

}  // namespace bert
