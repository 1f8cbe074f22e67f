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
// T_comm: gradients are reduced in a node, then between nodes. T_hidden: what happens behind the last micro-step's
// backward, of which the last bucket's reduction is no part. 0.08: what runs beside backward slows it down.
//
// `link` is the bus bandwidth of an all-reduce inside a node and `node` that of one between nodes, in the terms of
// nccl-tests (doc/PERFORMANCE.md). The optimizer is bound by memory: bytes that it moves over the bandwidth of a copy.
// Micro-batches are dealt by tokens, so that ranks end together. Held against NVIDIA's published tables in
// tests/plan/plan_test.cc.

/// What one GPU does in an optimizer step.
struct StepWork {
  double micro_step_seconds = 0;  // forward and backward
  int64_t accumulation_steps = 1;
  double gradient_bytes = 0;   // all-reduced once
  double bucket_bytes = 25e6;  // of one all-reduce
  double optimizer_bytes = 0;  // read and written by the update
  double gathered_bytes = 0;   // of weights that owners send to all after the update (shard_optimizer_state)
};

struct StepTime {
  double compute = 0;        // seconds, as the others: accumulation_steps * micro_step_seconds
  double communication = 0;  // as if nothing ran beside it
  double exposed = 0;        // what it adds to the step
  double optimizer = 0;
  [[nodiscard]] double total() const { return compute + exposed + optimizer; }
};

/// Note [Model of a step].
StepTime predict_step(const StepWork& work, const Cluster& cluster);

/// The micro_step_seconds with which predict_step gives `step_seconds`; 0 where communication and update alone take
/// longer.
double fit_micro_step_seconds(StepWork work, const Cluster& cluster, double step_seconds);

}  // namespace bert
