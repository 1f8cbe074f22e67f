// The way of a step's batches to a GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <array>
#include <cstddef>

#include "data/loader/global_step.h"

namespace bert {

// Note [Copies of a step]
// The batches of a step are copied from pinned memory on a stream of their own, into one of two buffers on the device that
// steps take in turn. So the copies run while the device computes the step before. Two events of each step order the
// rest: a step computes after its copies, and a buffer is written after the last step in it has been computed. LibTorch
// keeps pinned memory until the copy from it has run. A buffer grows to the largest step, in steps of an eighth or more;
// afterwards a step allocates nothing.
//
// These copies have run on no GPU. So the first steps compare them, as the stream that computes sees them, with the
// batches. After a difference that stream makes the copies, and a warning says so.

/// The copies of one run. Not for several threads.
class StepCopies {
 public:
  explicit StepCopies(c10::Device device);

  /// Puts copies on the device in place of the batches of `step`, which are in pinned memory. What is queued on the
  /// current stream from now on comes after the copies.
  void begin(GlobalStep& step);
  /// All work with the copies has been queued on the current stream. Call it once after each begin().
  void end();

 private:
  void copy_on_own_stream(GlobalStep& step);

  struct Buffer {
    at::Tensor bytes;  // [capacity] uint8
    c10::Event free;   // after the last step in the buffer
  };
  c10::Stream stream_;
  c10::Event copied_;
  std::array<Buffer, 2> buffers_;
  size_t current_ = 0;
  int to_compare_ = 2;  // steps: one in each buffer
  bool own_stream_ = true;
};

}  // namespace bert
