// CUDA graphs of a run's steps.
#pragma once

#include <c10/core/Stream.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda_ext/compat.h"
#include "cuda_ext/packed_batch.h"

namespace bert {

// Note [Graphs of a step]
// A micro-step (forward, backward, accumulation) is captured once for each shape of its batch (Note [Static batches] in
// data/loader/batch_plan.h), the update (learning rate, unscaling, norm, optimizer, loss scale) once. Later steps replay
// them, on a stream of their own.
//
// Whatever differs between steps lies on the device, at addresses that stay: the batch and the weights of its loss are
// copied to the graph's own tensors; the number of steps, from which the learning rate
// follows, the loss scale and the sums of losses are tensors that the captured work reads and writes. Seeds of attention's
// dropout are set before each replay, as before a forward pass, and LibTorch hands them to the graph by its generator's
// tensors; all other dropout follows from the batch's keys. Zeroed gradients, the weights of losses, and with several
// ranks the reduction (after the last micro-step's backward, not during it) are not captured.
//
// Eager steps are the reference. The first step of a process is made in both ways, from the same state, and all that it
// writes is compared bit by bit: weights, optimizer, loss scale, gradients, sums of losses. The state before it and the
// eager result wait in the host's memory. After a difference or a failed capture the state is that of the eager step, and
// the run goes on with eager steps, or ends if graphs are required. A shape that comes up later is captured without a
// comparison.
//
// All graphs share one pool of memory, as large as the largest needs; the eager step's memory is given back before. Memory
// of evaluations is apart from it.

/// The graphs of one run. Not for several threads.
class StepGraphs {
 public:
  /// `required`: a failure throws; else it is said, once.
  StepGraphs(c10::Device device, bool required, std::function<void(const std::string&)> say);

  /// While it lives, the graphs' stream is the current one. That comes after what was queued before, and what is queued
  /// later comes after it.
  class OnStream {
   public:
    explicit OnStream(const StepGraphs& graphs);
    ~OnStream();
    OnStream(const OnStream&) = delete;
    OnStream& operator=(const OnStream&) = delete;

   private:
    c10::Stream previous_, own_;
  };

  using MicroStep = std::function<void(const PackedBatch& batch, const torch::Tensor& weights)>;
  /// Queues run(batch, weights) as a replay, with copies of the arguments, which are on the device. `seed` is called before a capture and before each replay. After a failure it calls run().
  void micro_step(const PackedBatch& batch, const torch::Tensor& weights, const std::function<void()>& seed,
                  const MicroStep& run);
  /// The same of run(), which depends on nothing that changes.
  void update(const std::function<void()>& run);

  /// False after a failure.
  [[nodiscard]] bool usable() const { return graphs_.has_value(); }
  /// No step uses graphs from now on. Throws c10::Error if graphs are required.
  void fail(const std::string& reason);
  /// "12 replays of 3 graphs"
  [[nodiscard]] std::string report() const;

 private:
  struct Captured {
    std::vector<int64_t> shape;
    PackedBatch batch;
    torch::Tensor weights;
    size_t graph = 0;
  };
  /// capture() of `run`, or run() and a failure.
  std::optional<size_t> captured(const char* what, const std::function<void()>& run);
  void replay(size_t graph);

  c10::Stream stream_;
  bool required_;
  std::function<void(const std::string&)> say_;
  std::optional<compat::DeviceGraphs> graphs_;
  std::vector<Captured> micro_steps_;
  std::optional<size_t> update_;
  int64_t replays_ = 0, captures_ = 0;
};

}  // namespace bert
