// The time of an optimizer step on a cluster, computed. Nothing here is measured.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// A GPU. FLOP/s are those of the data sheet for dense matrices; 0: the GPU lacks the precision. Bandwidths are
/// measured values.
struct GpuModel {
  const char* name;
  double fp8_flops, fp16_flops, bf16_flops, tf32_flops, fp32_flops;  // FLOP/s
  double memory;                                                     // bytes
  double copy_bandwidth;                                             // bytes/s, read and written
  double link_bandwidth;  // bytes/s, bus bandwidth of an all-reduce inside a node
};

/// A network port.
struct NetworkPort {
  const char* name;
  double bandwidth;  // bytes/s of an all-reduce through one port
  bool per_gpu;      // the usual number of ports is one for each GPU, up to 8; else one for each node
};

/// The GPUs and network ports that `bert plan` knows by name.
const std::vector<GpuModel>& gpu_models();
const std::vector<NetworkPort>& network_ports();

struct Cluster {
  int64_t nodes = 1;
  int64_t gpus_per_node = 1;
  GpuModel gpu{};
  double node_bandwidth = 0;  // bytes/s, all ports of a node together; unused with one node
  [[nodiscard]] int64_t gpus() const { return nodes * gpus_per_node; }
};

/// Peak FLOP/s of the GPU in the precision. Throws ConfigError if the GPU lacks it.
double peak_flops(const GpuModel& gpu, const std::string& precision);

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
