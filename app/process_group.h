// torch.distributed's init_process_group for this program: ranks from the environment that torchrun and bertrun set.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace bert {

struct DistributedEnvironment {
  int64_t rank = 0, world_size = 1, local_rank = 0;
  std::string master_addr;
  int64_t master_port = 0;
};

/// RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT; one process when RANK and WORLD_SIZE are unset. Throws
/// ConfigError on values that do not fit together.
DistributedEnvironment distributed_environment();

/// The default process group, Gloo on the CPU, NCCL with `cuda`; nullptr for one process. Throws PeerError after
/// `timeout_seconds`, naming address and what to check.
c10::intrusive_ptr<c10d::ProcessGroup> init_process_group(const DistributedEnvironment& environment, bool cuda,
                                                          int64_t timeout_seconds);

}  // namespace bert
