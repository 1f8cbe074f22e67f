// The time of an optimizer step on a cluster, computed. Nothing here is measured.
#pragma once

#include <cstdint>

#include "app/plan/cluster.h"

namespace bert {

// Note [Model of a step]
// With n bytes of gradients, N nodes of g GPUs, nb buckets, k micro-steps of T_fb seconds (forward and backward):
//
//   T_comm    = 2 (g - 1) / g * n / link + 2 (N - 1) / N * n / node + nb * latency
//   T_hidden  = min((1 - 1 / nb) * T_comm, 2/3 T_fb)
//   T_exposed = T_comm - T_hidden + 0.08 T_hidden
//   T_step    = k T_fb + T_exposed + T_optimizer
//
// T_comm: gradients are reduced inside each node, then between nodes. T_hidden: the part of T_comm that overlaps with
// the last micro-step's backward; the reduction of the last bucket does not. 0.08: communication slows backward down.
//
// `link` and `node` are bus bandwidths of an all-reduce, inside a node and between nodes, in the terms of nccl-tests
// (doc/PERFORMANCE.md). The optimizer is bound by memory: T_optimizer is the number of bytes that it moves over the
// bandwidth of a copy. Micro-batches are dealt by tokens, so ranks end a step together. tests/plan/plan_test.cc
// compares the model with NVIDIA's published tables.

/// The work of one GPU in an optimizer step.
struct StepWork {
  double micro_step_seconds = 0;  // forward and backward
  int64_t accumulation_steps = 1;
  double gradient_bytes = 0;   // reduced once in a step
  double bucket_bytes = 25e6;  // size of one all-reduce
  double optimizer_bytes = 0;  // read and written by the update
  double gathered_bytes = 0;   // weights that their owners send to all ranks after the update (shard_optimizer_state)
};

/// Seconds.
struct StepTime {
  double compute = 0;        // accumulation_steps * micro_step_seconds
  double communication = 0;  // without overlap
  double exposed = 0;        // the part of communication that lengthens the step
  double optimizer = 0;
  [[nodiscard]] double total() const { return compute + exposed + optimizer; }
};

/// Predicts the time of a step: Note [Model of a step].
StepTime predict_step(const StepWork& work, const Cluster& cluster);

/// The micro_step_seconds with which predict_step gives `step_seconds`; 0 if communication and update alone take
/// longer.
double fit_micro_step_seconds(StepWork work, const Cluster& cluster, double step_seconds);

}  // namespace bert
