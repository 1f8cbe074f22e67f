#include "app/train/step/step_copies.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>
#include <torch/types.h>

#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace bert {
namespace {

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

/// Bytes of a tensor in a buffer, whose tensors begin where cudaMalloc's would.
int64_t room_of(const at::Tensor& tensor) {
  constexpr int64_t kAlignment = 256;
  return tensor.defined() ? round_up(static_cast<int64_t>(tensor.nbytes()), kAlignment) : 0;
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

void copy_on_current_stream(GlobalStep& step, c10::Device device) {
  for (PackedBatch& batch : step.micro_batches) batch = batch.to(device);
}

bool equal(const GlobalStep& copied, const GlobalStep& given) {
  for (size_t i = 0; i < given.micro_batches.size(); ++i) {
    std::vector<at::Tensor> copies;
    PackedBatch::visit_tensors(copied.micro_batches[i], [&](const at::Tensor& tensor) { copies.push_back(tensor); });
    size_t next = 0;
    bool same = true;
    PackedBatch::visit_tensors(given.micro_batches[i], [&](const at::Tensor& tensor) {
      const at::Tensor& copy = copies[next++];
      same = same && (!tensor.defined() || at::equal(copy.to(at::kCPU), tensor));
    });
    if (!same) return false;
  }
  return true;
}

}  // namespace

StepCopies::StepCopies(c10::Device device)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      copied_(device.type()),
      buffers_{Buffer{.bytes = {}, .free = c10::Event(device.type())},
               Buffer{.bytes = {}, .free = c10::Event(device.type())}} {}

void StepCopies::begin(GlobalStep& step) {
  if (!own_stream_) return copy_on_current_stream(step, stream_.device());
  GlobalStep given;
  if (to_compare_ > 0) given.micro_batches = step.micro_batches;
  copy_on_own_stream(step);
  if (to_compare_ == 0) return;
  --to_compare_;
  if (equal(step, given)) return;
  own_stream_ = false;
  TORCH_WARN(
      "Batches that were copied on a stream of their own differ from what was read. The stream that computes makes the "
      "copies now.");
  step.micro_batches = std::move(given.micro_batches);
  copy_on_current_stream(step, stream_.device());
}

void StepCopies::copy_on_own_stream(GlobalStep& step) {
  const c10::Stream computes = current_stream(stream_.device());
  current_ = 1 - current_;
  Buffer& buffer = buffers_[current_];
  int64_t bytes = 0;
  for (const PackedBatch& batch : step.micro_batches)
    PackedBatch::visit_tensors(batch, [&](const at::Tensor& tensor) { bytes += room_of(tensor); });
  if (!buffer.bytes.defined() || buffer.bytes.numel() < bytes) {
    const auto eighth = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)) / 8);
    buffer.bytes =
        torch::empty({round_up(bytes, eighth)}, torch::TensorOptions().dtype(torch::kByte).device(stream_.device()));
    buffer.free.record(computes);  // LibTorch may have taken it from earlier work
  }
  buffer.free.block(stream_);
  const c10::StreamGuard on(stream_);
  int64_t place = 0;
  for (PackedBatch& batch : step.micro_batches) {
    PackedBatch::visit_tensors(batch, [&](at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const at::Tensor there = buffer.bytes.narrow(0, place, static_cast<int64_t>(tensor.nbytes()))
                                   .view(tensor.scalar_type())
                                   .view(tensor.sizes());
      place += room_of(tensor);
      tensor = there.copy_(tensor, /*non_blocking=*/true);
    });
  }
  copied_.record(stream_);
  copied_.block(computes);
}

void StepCopies::end() {
  if (own_stream_) buffers_[current_].free.record(current_stream(stream_.device()));
}

}  // namespace bert
