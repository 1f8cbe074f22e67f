// Optimizer state divided over ranks (ZeRO, stage 1), behind BertOptimizer.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// Which rank owns each parameter: gets its gradient, keeps its moments, master and average, and updates it.
///
/// Note [Sharding by whole tensors]
/// LAMB's trust ratio needs norms of whole tensors, so tensors are not cut: an update then has the same bits whoever
/// computes it. Owners are contiguous runs of parameters, last first, as DataParallel lays gradients out: the first run
/// is rank 0's. The largest run is as small as such runs allow; it is no smaller than the largest tensor, the word
/// embeddings (BERT-base 21 % of all elements, BERT-large 9 %). A reduction to one root at a time and a broadcast from
/// one root at a time move the bytes of a reduce-scatter and an all-gather of uneven parts.
///
/// Throws c10::Error when there are more ranks than parameters.
[[nodiscard]] std::vector<int> assign_owners(const std::vector<NamedParameter>& parameters, int ranks);

/// make_optimizer() whose state lies with the owners. After DataParallel with the same `owners` has reduced the
/// gradients, apply() exchanges the norms of all tensors, updates this rank's parameters and sends them to the others:
/// every rank calls it, skips the same steps, and has the same bits in all parameters, grad_norm(), found_inf() and
/// applied_steps() after it. With fp16 or bf16 parameters these are what is sent, not the masters.
/// Collectives too are state_dict() (rank 0 gets the whole state in new CPU tensors, which a checkpoint of any number
/// of ranks is made of; the others get nothing), emas() and first_non_finite_gradient(). load_state_dict() takes
/// the whole state and keeps this rank's part. param_groups() are those of this rank's parameters, of whose options a
/// step takes over the rate; every owned parameter needs a gradient, which DataParallel sees to. Throws c10::Error as
/// make_optimizer does, for a frozen parameter, and for owners that are no ranks or leave one without parameters.
/// Source: Rajbhandari et al. 2020, arXiv:1910.02054, P_os; torch's ZeroRedundancyOptimizer shards whole tensors too.
[[nodiscard]] std::unique_ptr<BertOptimizer> make_sharded_optimizer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                                    const OptimizerConfig& config,
                                                                    const std::vector<NamedParameter>& parameters,
                                                                    const std::vector<int>& owners);

}  // namespace bert
