// Gloo for tensors of one device.
#pragma once

#include <c10/core/Device.h>

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

namespace bert {

/// Note [The device of Gloo's threads]
/// Gloo's threads wait for CUDA streams, and put the current device back afterwards. Theirs is device 0, so each rank
/// would make a context there: half a gigabyte of another rank's GPU, or an error where that GPU is exclusive. So the
/// threads first make the rank's device their current one.
///
/// Makes the backend of a rank whose tensors are on `device` or on the CPU.
c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    const c10::intrusive_ptr<c10d::ProcessGroupGloo::Options>& options,
                                                    c10::Device device);

}  // namespace bert
