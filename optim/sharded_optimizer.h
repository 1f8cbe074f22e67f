// Optimizer state divided over ranks (ZeRO, stage 1), with the interface of BertOptimizer.
#pragma once

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/optimizer.h"

namespace bert {

/// The owner of each parameter: the rank that gets its gradient, keeps its moments, master and moving average, and
/// updates it.
///
/// Note [Sharding by whole tensors]
/// LAMB's trust ratio needs norms of whole tensors, so tensors are not cut, and an update has the same bits on every
/// owner. Owners are contiguous runs of parameters, last first, as DataParallel lays gradients out: the first run is
/// rank 0's. The largest run is as small as possible; it is no smaller than the largest tensor, the word embeddings
/// (BERT-base 21 % of all elements, BERT-large 9 %). One reduction and one broadcast for each root move as many bytes
/// as a reduce-scatter and an all-gather of uneven parts.
///
/// Throws c10::Error if there are more ranks than parameters.
[[nodiscard]] std::vector<int> assign_owners(const std::vector<NamedParameter>& parameters, int ranks);

/// make_optimizer() with its state divided among the owners. DataParallel with the same `owners` reduces the gradients
/// first. Then apply() exchanges the norms of all tensors, updates this rank's parameters and sends them to the others.
/// Every rank calls it, skips the same steps, and has the same bits in all parameters, grad_norm(), found_inf() and
/// applied_steps() afterwards. For fp16 or bf16 parameters the parameters are sent, not the masters.
/// state_dict(), load_state_dict(), emas() and first_non_finite_gradient() are collectives too. state_dict() gives rank 0 the whole state
/// in new CPU tensors, for a checkpoint that any number of ranks can load; the other ranks get nothing.
/// load_state_dict() takes the whole state of rank 0 and gives each rank its part; the other ranks' argument needs the
/// same entries, but no values (device meta). param_groups() are those of this rank's
/// parameters; a step uses the rate in their options. Every owned parameter needs a gradient, which DataParallel
/// provides.
/// Throws c10::Error as make_optimizer does, for a frozen parameter, for owners that are not ranks, and if a rank owns
/// no parameter.
/// Source: Rajbhandari et al. 2020, arXiv:1910.02054, P_os; torch's ZeroRedundancyOptimizer shards whole tensors too.
[[nodiscard]] std::unique_ptr<BertOptimizer> make_sharded_optimizer(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                                    const OptimizerConfig& config,
                                                                    const std::vector<NamedParameter>& parameters,
                                                                    const std::vector<int>& owners);

}  // namespace bert
