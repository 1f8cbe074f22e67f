// Tables of the GPUs and networks that `bert plan` knows by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

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

/// FLOP/s of the GPU in the precision. Throws ConfigError where it has none.
double peak_flops(const GpuModel& gpu, const std::string& precision);

}  // namespace bert
