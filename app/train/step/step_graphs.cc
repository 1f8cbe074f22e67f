#include "app/train/step/step_graphs.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace bert {
namespace {

c10::Stream exchange(c10::Stream stream) {
  return c10::impl::VirtualGuardImpl(stream.device_type()).exchangeStream(stream);
}

/// Later work of the stream `later` waits for the work that is queued on `earlier` now.
void order(const c10::Stream& earlier, const c10::Stream& later) {
  c10::Event event(earlier.device_type());
  event.record(earlier);
  event.block(later);
}

/// Equal for batches of the same shape.
std::vector<int64_t> shape_of(const PackedBatch& batch) {
  std::vector<int64_t> shape = {batch.max_seqlen};
  PackedBatch::visit_tensors(
      batch, [&](const at::Tensor& tensor) { shape.push_back(tensor.defined() ? tensor.numel() : -1); });
  return shape;
}

void copy(const PackedBatch& from, PackedBatch& to) {
  std::vector<at::Tensor> sources;
  PackedBatch::visit_tensors(from, [&](const at::Tensor& tensor) { sources.push_back(tensor); });
  size_t next = 0;
  PackedBatch::visit_tensors(to, [&](const at::Tensor& tensor) {
    if (tensor.defined()) tensor.copy_(sources[next], /*non_blocking=*/true);
    ++next;
  });
}

}  // namespace

StepGraphs::StepGraphs(c10::Device device, bool required, std::function<void(const std::string&)> say)
    : stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      required_(required),
      say_(std::move(say)),
      graphs_(std::in_place) {}

StepGraphs::OnStream::OnStream(const StepGraphs& graphs) : previous_(exchange(graphs.stream_)), own_(graphs.stream_) {
  order(previous_, own_);
}

StepGraphs::OnStream::~OnStream() {
  order(own_, previous_);
  exchange(previous_);
}

void StepGraphs::micro_step(const PackedBatch& batch, const torch::Tensor& weights, const std::function<void()>& seed,
                            const MicroStep& run) {
  std::vector<int64_t> shape = shape_of(batch);
  seed();
  const auto found =
      std::ranges::find_if(micro_steps_, [&](const Captured& captured) { return captured.shape == shape; });
  if (found != micro_steps_.end()) {
    copy(batch, found->batch);
    found->weights.copy_(weights);
    return replay(found->graph);
  }
  Captured made{.shape = std::move(shape), .batch = batch, .weights = weights.clone()};
  PackedBatch::visit_tensors(made.batch, [&](at::Tensor& tensor) {
    if (tensor.defined())
      tensor = tensor.to(stream_.device(), tensor.scalar_type(), /*non_blocking=*/true, /*copy=*/true);
  });
  const auto graph = captured("a micro-step", [&] { run(made.batch, made.weights); });
  if (!graph) return;
  made.graph = *graph;
  replay(made.graph);
  micro_steps_.push_back(std::move(made));
}

void StepGraphs::update(const std::function<void()>& run) {
  if (!update_) update_ = captured("the update", run);
  if (update_) replay(*update_);
}

std::optional<size_t> StepGraphs::captured(const char* what, const std::function<void()>& run) {
  std::string reason;
  try {
    const size_t graph = graphs_->capture(run);
    ++captures_;
    return graph;
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  }
  fail(fmt::format("the capture of {} failed: {}", what, reason));
  run();
  return std::nullopt;
}

void StepGraphs::replay(size_t graph) {
  graphs_->replay(graph);
  ++replays_;
}

void StepGraphs::fail(const std::string& reason) {
  TORCH_CHECK(!required_, "cuda_graphs on: ", reason, ". Set cuda_graphs=off, or auto to go on without graphs.");
  if (!usable()) return;
  say_("cuda_graphs: the run goes on without graphs: " + reason);
  micro_steps_.clear();
  update_.reset();
  graphs_.reset();
}

std::string StepGraphs::report() const { return fmt::format("{} replays of {} graphs", replays_, captures_); }

}  // namespace bert
