// NCCL as a backend of a process group, and the GPU that a rank may have to itself.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace bert {

struct NcclOptions {
  int rank = 0, size = 1;
  std::chrono::milliseconds timeout;  // of a collective, for the monitor; LibTorch's own comes later
  c10::Device device;                 // the GPU of this rank
};

/// Makes the backend and binds it to the device. It has no communicator yet: eagerConnectSingleDevice() forms it. Throws
/// ConfigError if this build has no NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const NcclOptions& options);

/// A GPU as NCCL tells it from others.
struct Gpu {
  std::string machine;    // an identifier of the machine, the same in all of its containers; one line
  std::string host_name;  // for messages
  std::string address;    // on the machine's PCI bus
  int64_t visible = 0;    // GPUs that this process sees
};

/// The GPU behind a device of this process.
Gpu gpu_of(c10::Device device);

/// Note [One GPU a rank]
/// NCCL needs a GPU of its own for each rank of a machine. Its error, "Duplicate GPU detected", has neither number, and
/// only some ranks report it. The number of GPUs alone does not tell: a launcher may show each rank another one
/// (CUDA_VISIBLE_DEVICES). So each rank writes its GPU into the store, and the last one writes the verdict.

/// Throws ConfigError on every rank, with the numbers of ranks and of GPUs, if two ranks have one GPU. Waits until all
/// `size` ranks have called it. Throws c10::Error if they do not come within the timeout of the store.
void expect_own_gpu(c10d::Store& store, int rank, int size, const Gpu& gpu);

}  // namespace bert
