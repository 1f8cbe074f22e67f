#include "app/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numeric>

#include "app/config/fields.h"
#include "app/system/errors.h"
#include "optim/run_owners.h"

namespace bert {
namespace {

bool low_precision(const std::string& precision) { return precision != "fp32" && precision != "tf32"; }

bool low_precision_weights(const std::string& precision) {
  return precision == "bf16-weights" || precision == "fp16-weights";
}

}  // namespace

const std::vector<GpuModel>& gpu_models() {
  // Copies: 4.3 TB/s was measured on an H200; the others are its 90 % of the data sheet's bandwidth. Links: NCCL's bus
  // bandwidth in a node, 478 GB/s on 8 H100 (nccl-tests issues 290 and 347), 230 on 8 A100, 120 on the 16 V100 of a
  // DGX-2.
  static const std::vector<GpuModel> models = {
      {"h200", 989e12, 989e12, 495e12, 67e12, 141e9, 4.3e12, 478e9},
      {"h100", 989e12, 989e12, 495e12, 67e12, 80e9, 3.0e12, 478e9},
      {"a100", 312e12, 312e12, 156e12, 19.5e12, 80e9, 1.8e12, 230e9},
      {"a100-40gb", 312e12, 312e12, 156e12, 19.5e12, 40e9, 1.4e12, 230e9},
      {"v100", 125e12, 0, 0, 15.7e12, 32e9, 0.8e12, 120e9},
  };
  return models;
}

const std::vector<NetworkPort>& network_ports() {
  // InfiniBand: seven eighths of the line (350 GB/s of 8 x 400 Gb/s, nccl-tests issue 283). Ethernet: 0.82 of it (330
  // of 8 x 400 Gb/s with RoCE, nccl issue 1221), a little less than a single stream of TCP gets.
  const auto infiniband = [](double gigabits) { return 0.875 * gigabits * 1e9 / 8; };
  const auto ethernet = [](double gigabits) { return 0.82 * gigabits * 1e9 / 8; };
  static const std::vector<NetworkPort> ports = {
      {"NDR", infiniband(400), true},  {"HDR", infiniband(200), true},  {"EDR", infiniband(100), true},
      {"400GbE", ethernet(400), true}, {"200GbE", ethernet(200), true}, {"100GbE", ethernet(100), false},
      {"25GbE", ethernet(25), false},  {"10GbE", ethernet(10), false},
  };
  return ports;
}

StepTime predict_step(const StepWork& work, const Cluster& cluster) {
  constexpr double kBackwardShare = 2.0 / 3;  // backward is two forwards
  constexpr double kContention = 0.08;    // of what is hidden: SMs and memory that communication takes from backward
  constexpr double kLinkLatency = 20e-6;  // of one all-reduce in a node; NCCL's tuner, ring over NVLink
  constexpr double kNodeLatency = 47e-6, kLatencyPerDoubling = 5e-6;  // 47 us on 2 nodes, 62 on 16: nccl issue 1469
  StepTime time;
  time.compute = static_cast<double>(work.accumulation_steps) * work.micro_step_seconds;
  time.optimizer = work.optimizer_bytes / cluster.gpu.copy_bandwidth;
  if (cluster.gpus() == 1) return time;
  const auto nodes = static_cast<double>(cluster.nodes), gpus = static_cast<double>(cluster.gpus_per_node);
  const double buckets = std::max(1.0, std::ceil(work.gradient_bytes / work.bucket_bytes));
  const double latency = cluster.nodes == 1 ? kLinkLatency : kNodeLatency + kLatencyPerDoubling * std::log2(nodes / 2);
  const auto one_way = [&](double bytes) {
    const double between = cluster.nodes == 1 ? 0 : (nodes - 1) / nodes * bytes / cluster.node_bandwidth;
    return (gpus - 1) / gpus * bytes / cluster.gpu.link_bandwidth + between;
  };
  const bool sharded = work.gathered_bytes > 0;
  time.communication = (sharded ? 1 : 2) * one_way(work.gradient_bytes) + buckets * latency;
  const double hidden = std::min((1 - 1 / buckets) * time.communication, kBackwardShare * work.micro_step_seconds);
  const double gathering = one_way(work.gathered_bytes);
  time.exposed = time.communication - hidden + kContention * hidden + gathering;
  time.communication += gathering;
  return time;
}

double fit_micro_step_seconds(StepWork work, const Cluster& cluster, double step_seconds) {
  double low = 0, high = step_seconds / static_cast<double>(work.accumulation_steps);
  for (int halving = 0; halving < 60; ++halving) {  // to the last bit of a double
    work.micro_step_seconds = (low + high) / 2;
    (predict_step(work, cluster).total() < step_seconds ? low : high) = work.micro_step_seconds;
  }
  return low;
}

std::vector<int64_t> parameter_sizes(const BertConfig& c) {
  const int64_t h = c.hidden_size, i = c.intermediate_size;
  std::vector<int64_t> sizes;
  const auto add = [&](std::initializer_list<int64_t> more) {
    for (const int64_t size : more) sizes.push_back(size);
  };
  const auto add_dense = [&](int64_t in, int64_t out) { add({in * out, out}); };
  add({c.vocab_size * h, c.max_position_embeddings * h, c.type_vocab_size * h, h, h});  // LayerNorm: weight, bias
  for (int64_t layer = 0; layer < c.num_hidden_layers; ++layer) {
    for (int projection = 0; projection < 4; ++projection) add_dense(h, h);  // query, key, value, output
    add({h, h});
    add_dense(h, i);
    add_dense(i, h);
    add({h, h});
  }
  add_dense(h, h);      // pooler
  add({c.vocab_size});  // the decoder's bias; its weight is the word embeddings
  add_dense(h, h);      // transform
  add({h, h});
  add_dense(h, 2);  // next sentence
  return sizes;
}

int64_t parameter_count(const BertConfig& config) {
  const std::vector<int64_t> sizes = parameter_sizes(config);
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

double owned_share(const PretrainConfig& config, int64_t ranks) {
  if (!config.distributed.shard_optimizer_state) return 1;
  const std::vector<int64_t> sizes = parameter_sizes(config.model);
  check_sharding(static_cast<int64_t>(sizes.size()), ranks);
  return static_cast<double>(largest_share(sizes, static_cast<int>(ranks))) /
         static_cast<double>(parameter_count(config.model));
}

MemoryPlan plan_memory(const PretrainConfig& config, double tokens_per_sequence, double masked_per_sequence,
                       int64_t ranks) {
  const auto parameters = static_cast<double>(parameter_count(config.model));
  const auto h = static_cast<double>(config.model.hidden_size), i = static_cast<double>(config.model.intermediate_size);
  const auto layers = static_cast<double>(config.model.num_hidden_layers),
             vocabulary = static_cast<double>(config.model.vocab_size);
  const auto batch = static_cast<double>(config.micro_batch_size);
  const double compute_bytes = low_precision(config.precision) ? 2 : 4;
  const bool masters = low_precision_weights(config.precision);
  MemoryPlan plan;
  // Autocast keeps a low-precision copy of the weights for as long as a forward lasts.
  plan.weights = parameters * (masters ? 2 : compute_bytes == 2 ? 4 + 2 : 4);
  plan.gradients = parameters * 4;
  plan.optimizer =
      owned_share(config, ranks) * parameters * (8 + (masters ? 4 : 0) + (config.optimizer.ema_decay > 0 ? 4 : 0));
  const double layer = 8 * h + 2 * i;  // Note [Gradient checkpointing] in model/bert.h
  const double encoder = config.gradient_checkpointing ? layers * h + layer : layers * layer;
  plan.activations = batch * (tokens_per_sequence * (encoder + 2 * h) * compute_bytes +
                              masked_per_sequence * (vocabulary * (4 + compute_bytes) + 3 * h * compute_bytes));
  return plan;
}

double peak_flops(const GpuModel& gpu, const std::string& precision) {
  const double flops = precision.starts_with("bf16")   ? gpu.bf16_flops
                       : precision.starts_with("fp16") ? gpu.fp16_flops
                       : precision == "tf32"           ? gpu.tf32_flops
                                                       : gpu.fp32_flops;
  if (flops == 0) throw ConfigError(std::string("precision ") + precision + ": " + gpu.name + " GPUs do not have it");
  return flops;
}

}  // namespace bert
