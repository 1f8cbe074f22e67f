#include "app/plan/step_model.h"

#include <algorithm>
#include <cmath>

#include "app/system/errors.h"

namespace bert {

StepTime predict_step(const StepWork& work, const Cluster& cluster) {
  constexpr double kBackwardShare = 2.0 / 3;  // backward is two forwards
  constexpr double kContention = 0.08;        // share of the hidden communication by which it slows backward down
  constexpr double kLinkLatency = 20e-6;      // seconds of one all-reduce inside a node: NCCL's tuner, ring over NVLink
  constexpr double kNodeLatency = 47e-6, kLatencyPerDoubling = 5e-6;  // 47 us on 2 nodes, 62 us on 16: nccl issue 1469
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
  for (int halving = 0; halving < 60; ++halving) {  // enough for the last bit of a double
    work.micro_step_seconds = (low + high) / 2;
    (predict_step(work, cluster).total() < step_seconds ? low : high) = work.micro_step_seconds;
  }
  return low;
}

const std::vector<GpuModel>& gpu_models() {
  // Copy bandwidth: 4.3 TB/s was measured on an H200; the others are 90 % of the data sheet's bandwidth, as there. Link
  // bandwidth: the bus bandwidth of NCCL inside a node. 478 GB/s on 8 H100 (nccl-tests issues 290 and 347), 230 on 8
  // A100, 120 on the 16 V100 of a DGX-2.
  static const std::vector<GpuModel> models = {
      {"h200", 1979e12, 989e12, 989e12, 495e12, 67e12, 141e9, 4.3e12, 478e9},
      {"h100", 1979e12, 989e12, 989e12, 495e12, 67e12, 80e9, 3.0e12, 478e9},
      {"a100", 0, 312e12, 312e12, 156e12, 19.5e12, 80e9, 1.8e12, 230e9},
      {"a100-40gb", 0, 312e12, 312e12, 156e12, 19.5e12, 40e9, 1.4e12, 230e9},
      {"v100", 0, 125e12, 0, 0, 15.7e12, 32e9, 0.8e12, 120e9},
  };
  return models;
}

const std::vector<NetworkPort>& network_ports() {
  // InfiniBand: 7/8 of the line rate (350 GB/s of 8 x 400 Gb/s, nccl-tests issue 283). Ethernet: 0.82 of the line rate
  // (330 GB/s of 8 x 400 Gb/s with RoCE, nccl issue 1221), slightly less than a single TCP stream reaches.
  const auto infiniband = [](double gigabits) { return 0.875 * gigabits * 1e9 / 8; };
  const auto ethernet = [](double gigabits) { return 0.82 * gigabits * 1e9 / 8; };
  static const std::vector<NetworkPort> ports = {
      {"NDR", infiniband(400), true},  {"HDR", infiniband(200), true},  {"EDR", infiniband(100), true},
      {"400GbE", ethernet(400), true}, {"200GbE", ethernet(200), true}, {"100GbE", ethernet(100), false},
      {"25GbE", ethernet(25), false},  {"10GbE", ethernet(10), false},
  };
  return ports;
}

double peak_flops(const GpuModel& gpu, const std::string& precision) {
  const double flops = precision.starts_with("bf16")   ? gpu.bf16_flops
                       : precision.starts_with("fp16") ? gpu.fp16_flops
                       : precision == "fp8"            ? gpu.fp8_flops
                       : precision == "tf32"           ? gpu.tf32_flops
                                                       : gpu.fp32_flops;
  if (flops == 0) throw ConfigError(std::string("precision ") + precision + ": " + gpu.name + " GPUs do not have it");
  return flops;
}

}  // namespace bert
