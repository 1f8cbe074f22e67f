// What pre-training will take on a cluster: the time of a step, the memory of a GPU, days. Nothing here is measured;
// `bert plan` says what it assumed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/config/pretrain_config.h"

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

/// Rates as the data sheets have them, dense; 0 = the GPU has no such arithmetic. Bandwidths are what was measured.
struct GpuModel {
  const char* name;
  double fp16_flops, bf16_flops, tf32_flops, fp32_flops;  // FLOP/s
  double memory;                                          // bytes
  double copy_bandwidth;                                  // bytes/s, read and written
  double link_bandwidth;                                  // bytes/s, bus bandwidth of an all-reduce in a node
};

/// A port of a network.
struct NetworkPort {
  const char* name;
  double bandwidth;  // bytes/s that an all-reduce gets through one port
  bool per_gpu;      // usually one for each GPU, up to 8; else one for each node
};

/// All that `bert plan` knows by name.
const std::vector<GpuModel>& gpu_models();
const std::vector<NetworkPort>& network_ports();

struct Cluster {
  int64_t nodes = 1;
  int64_t gpus_per_node = 1;
  GpuModel gpu{};
  double node_bandwidth = 0;  // bytes/s, all ports of a node; not read with one node
  [[nodiscard]] int64_t gpus() const { return nodes * gpus_per_node; }
};

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

/// Elements of each parameter of BertForPreTraining, the tied decoder once, in the order of the module.
std::vector<int64_t> parameter_sizes(const BertConfig& config);

/// Their sum.
int64_t parameter_count(const BertConfig& config);

/// What a rank keeps of the optimizer's state: the share of the parameters on the rank that has most of them, 1 unless
/// the state is sharded. Throws as check_sharding.
double owned_share(const PretrainConfig& config, int64_t ranks);

/// Bytes on one GPU.
struct MemoryPlan {
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  [[nodiscard]] double total() const { return weights + gradients + optimizer + activations; }
};

/// Gradients are fp32; fp32 masters stand beside low-precision weights. Activations are what forward keeps for
/// backward, 8 H + 2 I values a token and layer, and the masked tokens' logits: a lower bound, without LibTorch's
/// workspaces and fragmentation. Of a sharded optimizer state it is the largest of `ranks` shares.
MemoryPlan plan_memory(const PretrainConfig& config, double tokens_per_sequence, double masked_per_sequence,
                       int64_t ranks);

/// FLOP/s of the GPU in the precision. Throws ConfigError where it has none.
double peak_flops(const GpuModel& gpu, const std::string& precision);

}  // namespace bert
