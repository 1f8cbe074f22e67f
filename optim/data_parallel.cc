#include "optim/data_parallel.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <unordered_map>
#include <utility>

namespace bert {
namespace {

constexpr int64_t kAlignment = 64;  // bytes; a cache line, and the widest vector load

int64_t padded(int64_t elements, int64_t element_bytes) {
  const int64_t unit = kAlignment / element_bytes;
  return (std::max<int64_t>(elements, 1) + unit - 1) / unit * unit;
}

c10::Stream current_stream(at::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

/// Autograd calls it when a parameter's gradient is complete: after the parameter's node, which adds what the
/// derivatives did not add themselves (Note [Gradients in place], cuda_ext/dispatch/derivative.h).
struct DataParallel::Hook : public torch::autograd::FunctionPostHook {
  using Variables = torch::autograd::variable_list;
  Hook(DataParallel* hook_owner, size_t parameter_entry) : owner(hook_owner), entry(parameter_entry) {}
  Variables operator()(const Variables& outputs, const Variables& /*inputs*/) override {
    owner->gradient_ready(entry);
    return outputs;
  }

  DataParallel* owner;
  size_t entry;
};

DataParallel::DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<NamedParameter>& parameters,
                           DataParallelOptions options)
    : group_(std::move(group)), options_(std::move(options)), parameters_(parameters) {
  TORCH_CHECK_VALUE(!parameters.empty(), "DataParallel: no parameters were given");
  TORCH_CHECK_VALUE(options_.bucket_bytes > 0, "DataParallel: bucket_bytes is ", options_.bucket_bytes,
                    ", expected more than 0");
  TORCH_CHECK_VALUE(options_.owners.empty() || options_.owners.size() == parameters.size(),
                    "DataParallel: ", options_.owners.size(), " owners for ", parameters.size(), " parameters");
  const at::NoGradGuard no_grad;
  const at::Device device = parameters.front().tensor.device();
  std::unordered_map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, tensor] : parameters) {
    TORCH_CHECK_VALUE(tensor.device() == device, "DataParallel: ", name, " is on ", tensor.device(), ", ",
                      parameters.front().name, " on ", device);
    const auto [seen, is_new] = names.emplace(tensor.unsafeGetTensorImpl(), name);
    TORCH_CHECK_VALUE(is_new, "DataParallel: ", seen->second, " and ", name,
                      " are one tensor, which has one gradient. Give a tied weight once.");
    if (tensor.requires_grad()) continue;
    frozen_.push_back({name, tensor});
    tensor.mutable_grad().reset();
  }
  TORCH_CHECK_VALUE(frozen_.size() < parameters.size(), "DataParallel: all ", parameters.size(),
                    " parameters are frozen (no requires_grad); expected one to train");
  for (const int owner : options_.owners) {
    TORCH_CHECK_VALUE(owner >= 0 && owner < world_size(), "DataParallel: an owner is rank ", owner, " of ",
                      world_size());
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    std::vector<NamedParameter> own;  // last first
    std::vector<int> roots;
    int64_t total = 0;
    for (size_t i = parameters.size(); i-- > 0;) {
      if (!parameters[i].tensor.requires_grad()) continue;
      if ((parameters[i].tensor.scalar_type() == at::kDouble) != (dtype == at::kDouble)) continue;
      own.push_back(parameters[i]);
      roots.push_back(options_.owners.empty() ? kAllRanks : options_.owners[i]);
      total += padded(parameters[i].tensor.numel(), static_cast<int64_t>(c10::elementSize(dtype)));
    }
    if (own.empty()) continue;
    buffers_.push_back(at::zeros({total}, at::TensorOptions().dtype(dtype).device(device)));
    int64_t offset = 0;
    for (size_t begin = 0, end = 0; begin < own.size(); begin = end) {
      while (end < own.size() && roots[end] == roots[begin]) ++end;
      offset = add_run(buffers_.back(), offset, {own.begin() + static_cast<std::ptrdiff_t>(begin), end - begin},
                       roots[begin]);
    }
  }
  if (group_ && !device.is_cpu()) {
    wait_begins_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);  // with timing
    wait_ended_.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  }
}

DataParallel::~DataParallel() { remove_hooks(); }

// Autograd makes a parameter's node for the stream of that time, and drops it when no graph and none of us holds it. So
// the nodes with hooks are those of one step: a later step may be on another stream, or in a captured graph.
void DataParallel::add_hooks() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    entry.node = torch::autograd::impl::grad_accumulator(entry.parameter.tensor);
    if (entry.node != nullptr) entry.hook = entry.node->add_post_hook(std::make_unique<Hook>(this, i));
  }
}

void DataParallel::remove_hooks() {
  for (Entry& entry : entries_) {
    if (entry.node != nullptr) entry.node->del_post_hook(entry.hook);
    entry.node.reset();
  }
}

int64_t DataParallel::add_run(const at::Tensor& buffer, int64_t begin, std::span<const NamedParameter> parameters,
                              int root) {
  const auto element_bytes = static_cast<int64_t>(buffer.element_size());
  const int64_t bucket_size = std::max<int64_t>(options_.bucket_bytes / element_bytes, 1);
  const size_t first_bucket = buckets_.size();
  const auto bucket_of = [&](int64_t element) {
    return first_bucket + static_cast<size_t>((element - begin) / bucket_size);
  };
  int64_t end = begin;
  const at::AutoDispatchBelowADInplaceOrView
      not_a_view_to_autograd;  // as a view of autograd, .grad could not be set to none
  for (const NamedParameter& parameter : parameters) {
    const int64_t numel = parameter.tensor.numel();
    const at::Tensor grad = buffer.narrow(0, end, numel).view(parameter.tensor.sizes());
    parameter.tensor.mutable_grad() = grad;
    entries_.push_back({.parameter = parameter,
                        .grad = grad,
                        .first_bucket = bucket_of(end),
                        .last_bucket = bucket_of(end + std::max<int64_t>(numel, 1) - 1)});
    end += padded(numel, element_bytes);
    buckets_.resize(bucket_of(end - 1) + 1);
    for (size_t b = entries_.back().first_bucket; b <= entries_.back().last_bucket; ++b) ++buckets_[b].parameters;
  }
  for (size_t b = first_bucket; b < buckets_.size(); ++b) {
    const int64_t offset = begin + static_cast<int64_t>(b - first_bucket) * bucket_size;
    Bucket& bucket = buckets_[b];
    bucket.gradients = buffer.narrow(0, offset, std::min(bucket_size, end - offset));
    bucket.root = root;
    if (group_ && options_.compression != GradientCompression::kNone) {
      const bool fp16 = options_.compression == GradientCompression::kFp16;
      bucket.compressed = at::empty_like(bucket.gradients, fp16 ? at::kHalf : at::kBFloat16);
    }
  }
  return end;
}

void DataParallel::broadcast_parameters() {
  if (!group_) return;
  std::vector<at::Tensor> tensors;
  for (const NamedParameter& parameter : parameters_) tensors.push_back(parameter.tensor.detach());
  c10d::broadcast_coalesced(group_, tensors, static_cast<size_t>(options_.bucket_bytes), /*rank=*/0);
}

std::optional<std::string> DataParallel::first_difference() const {
  if (!group_) return std::nullopt;
  const at::Device device = buffers_.front().device();
  const at::Tensor own = at::empty({static_cast<int64_t>(parameters_.size())}, at::kLong);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor bits = parameters_[i].tensor.detach().to(at::kCPU).contiguous();
    const std::string_view bytes(static_cast<const char*>(bits.const_data_ptr()), bits.nbytes());
    own.mutable_data_ptr<int64_t>()[i] = static_cast<int64_t>(std::hash<std::string_view>()(bytes));
  }
  std::vector<at::Tensor> inputs{own.to(device)};
  std::vector<std::vector<at::Tensor>> outputs(1);
  for (int rank = 0; rank < world_size(); ++rank) outputs[0].push_back(at::empty_like(inputs[0]));
  group_->allgather(outputs, inputs)->wait();
  std::vector<at::Tensor> hashes;
  for (const at::Tensor& output : outputs[0]) hashes.push_back(output.to(at::kCPU));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    std::string ranks;
    for (size_t rank = 1; rank < hashes.size(); ++rank) {
      if (hashes[rank].const_data_ptr<int64_t>()[i] != hashes[0].const_data_ptr<int64_t>()[i]) {
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
      }
    }
    if (!ranks.empty()) {
      return parameters_[i].name + " differs from rank 0's on rank" +
             (ranks.find(',') == std::string::npos ? " " : "s ") + ranks;
    }
  }
  return std::nullopt;
}

void DataParallel::expect_reduction(bool last_micro_step) {
  reduction_expected_ = last_micro_step;
  remove_hooks();
  if (!last_micro_step) return;
  if (group_) add_hooks();
  next_bucket_ = 0;
  for (Entry& entry : entries_) entry.ready = false;
  for (Bucket& bucket : buckets_) bucket.pending = bucket.parameters;
}

void DataParallel::gradient_ready(size_t index) {
  if (!reduction_expected_) return;
  Entry& entry = entries_[index];
  if (entry.ready) {
    TORCH_CHECK(entry.first_bucket >= next_bucket_, "DataParallel: ", entry.parameter.name,
                " got a gradient in the last backward after it was reduced: a parameter may be in one backward of the "
                "last micro-step only, and in one re-computed part of the model");
    return;
  }
  entry.ready = true;
  for (size_t b = entry.first_bucket; b <= entry.last_bucket; ++b) --buckets_[b].pending;
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].pending == 0) launch(buckets_[next_bucket_++]);
}

void DataParallel::launch(Bucket& bucket) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> tensors{bucket.gradients};
  if (bucket.compressed.defined()) {
    if (options_.mean_over_ranks) bucket.gradients.div_(world_size());
    tensors = {bucket.compressed.copy_(bucket.gradients)};
  }
  if (bucket.root == kAllRanks) {
    bucket.work = group_->allreduce(tensors);
  } else {
    c10d::ReduceOptions options;
    options.rootRank = bucket.root;
    bucket.work = group_->reduce(tensors, options);
  }
}

void DataParallel::complete(Bucket& bucket) {
  bucket.work->wait();
  bucket.work.reset();
  if (bucket.root != kAllRanks && bucket.root != rank()) return;
  if (bucket.compressed.defined()) {
    bucket.gradients.copy_(bucket.compressed);
  } else if (options_.mean_over_ranks) {
    bucket.gradients.div_(world_size());
  }
}

void DataParallel::finish() {
  TORCH_CHECK(reduction_expected_,
              "DataParallel::finish: expect_reduction(true) was not called before the last backward");
  reduction_expected_ = false;
  remove_hooks();
  check_views();
  if (!group_) return;
  const at::NoGradGuard no_grad;
  const at::Device device = buffers_.front().device();
  const auto start = std::chrono::steady_clock::now();
  if (wait_begins_) wait_begins_->record(current_stream(device));
  while (next_bucket_ < buckets_.size()) launch(buckets_[next_bucket_++]);
  for (Bucket& bucket : buckets_) complete(bucket);
  if (wait_ended_) wait_ended_->record(current_stream(device));
  exposed_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double DataParallel::exposed_ms() const {
  if (!wait_ended_ || !wait_ended_->was_marked_for_recording()) return exposed_ms_;
  wait_ended_->synchronize();
  return wait_begins_->elapsedTime(*wait_ended_);
}

void DataParallel::zero_gradients() {
  check_views();
  for (const at::Tensor& buffer : buffers_) buffer.zero_();
}

void DataParallel::check_views() const {
  for (const auto& [name, tensor] : frozen_) {
    TORCH_CHECK(!tensor.grad().defined(), "DataParallel: ", name,
                " has a gradient, and was frozen when this was made. Make a DataParallel when it is no longer.");
  }
  for (const Entry& entry : entries_) {
    const at::Tensor& grad = entry.parameter.tensor.grad();
    TORCH_CHECK(grad.defined() && grad.data_ptr() == entry.grad.data_ptr(), "DataParallel: the gradient of ",
                entry.parameter.name,
                " is no longer a view into the buffer. Zero gradients with zero_gradients(), not with zero_grad().");
  }
}

}  // namespace bert
