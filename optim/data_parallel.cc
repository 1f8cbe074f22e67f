#include "optim/data_parallel.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace bert {
namespace {

constexpr int64_t kAlignment = 64;  // bytes; a cache line, and the widest vector load

int64_t padded(int64_t elements, int64_t element_bytes) {
  const int64_t unit = kAlignment / element_bytes;
  return (elements + unit - 1) / unit * unit;
}

}  // namespace

DataParallel::DataParallel(c10::intrusive_ptr<c10d::ProcessGroup> group, const std::vector<NamedParameter>& parameters,
                           int64_t bucket_bytes)
    : group_(std::move(group)) {
  TORCH_CHECK_VALUE(!parameters.empty(), "DataParallel: no parameters were given");
  TORCH_CHECK_VALUE(bucket_bytes > 0, "DataParallel: bucket_bytes is ", bucket_bytes, ", expected more than 0");
  const at::NoGradGuard no_grad;
  const at::Device device = parameters.front().tensor.device();
  for (const NamedParameter& parameter : parameters) {
    TORCH_CHECK_VALUE(parameter.tensor.device() == device, "DataParallel: ", parameter.name, " is on ",
                      parameter.tensor.device(), ", ", parameters.front().name, " on ", device);
  }
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    std::vector<NamedParameter> own;
    int64_t total = 0;
    for (auto it = parameters.rbegin(); it != parameters.rend(); ++it) {
      if ((it->tensor.scalar_type() == at::kDouble) != (dtype == at::kDouble)) continue;
      own.push_back(*it);
      total += padded(it->tensor.numel(), static_cast<int64_t>(c10::elementSize(dtype)));
    }
    if (own.empty()) continue;
    const at::Tensor buffer = at::zeros({total}, at::TensorOptions().dtype(dtype).device(device));
    const auto element_bytes = static_cast<int64_t>(buffer.element_size());
    int64_t offset = 0;
    for (NamedParameter& parameter : own) {
      const int64_t numel = parameter.tensor.numel();
      const at::Tensor grad = buffer.narrow(0, offset, numel).view(parameter.tensor.sizes());
      parameter.tensor.mutable_grad() = grad;
      entries_.push_back({std::move(parameter), grad});
      offset += padded(numel, element_bytes);
    }
    for (int64_t begin = 0, size = std::max<int64_t>(bucket_bytes / element_bytes, 1); begin < total; begin += size) {
      buckets_.push_back(buffer.narrow(0, begin, std::min(size, total - begin)));
    }
    buffers_.push_back(buffer);
  }
}

void DataParallel::broadcast_parameters() {
  if (!group_) return;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  c10d::BroadcastOptions options;
  options.rootRank = 0;
  for (const Entry& entry : entries_) {
    std::vector<at::Tensor> tensors{entry.parameter.tensor.detach()};
    works.push_back(group_->broadcast(tensors, options));
  }
  for (const auto& work : works) work->wait();
}

void DataParallel::finish() {
  TORCH_CHECK(reduction_expected_,
              "DataParallel::finish: expect_reduction(true) was not called before the last backward");
  reduction_expected_ = false;
  check_views();
  if (!group_) return;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (const at::Tensor& bucket : buckets_) {
    std::vector<at::Tensor> tensors{bucket};
    works.push_back(group_->allreduce(tensors));
  }
  for (const auto& work : works) work->wait();
  for (const at::Tensor& buffer : buffers_) buffer.div_(group_->getSize());
}

void DataParallel::zero_gradients() {
  check_views();
  for (const at::Tensor& buffer : buffers_) buffer.zero_();
}

void DataParallel::check_views() const {
  for (const Entry& entry : entries_) {
    const at::Tensor& grad = entry.parameter.tensor.grad();
    TORCH_CHECK(grad.defined() && grad.data_ptr() == entry.grad.data_ptr(), "DataParallel: the gradient of ",
                entry.parameter.name,
                " is no longer a view into the buffer. Zero gradients with zero_gradients(), not with zero_grad().");
  }
}

}  // namespace bert
