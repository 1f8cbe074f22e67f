// What tests of process groups share.
#pragma once

#include <ATen/ATen.h>

#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "app/distributed/process_group.h"

namespace bert::testing {

/// The same exit code for each rank of a job.
inline std::vector<int> codes(int size, int code = 0) { return std::vector<int>(static_cast<size_t>(size), code); }

inline at::Tensor numbers(std::vector<double> values) { return at::tensor(values, at::kDouble); }

inline void broadcast(const ProcessGroupPtr& group, const at::Tensor& tensor, int root) {
  c10d::BroadcastOptions options;
  options.rootRank = root;
  std::vector<at::Tensor> tensors{tensor};
  group->broadcast(tensors, options)->wait();
}

/// Makes another group of all ranks of `job`.
inline ProcessGroupPtr group_beside(const ProcessGroupPtr& job, const std::string& name,
                                    const ProcessGroupOptions& options) {
  return make_process_group(c10::make_intrusive<c10d::PrefixStore>(name, store_of(job)),
                            {.rank = get_rank(job), .size = get_world_size(job)}, options);
}

}  // namespace bert::testing
