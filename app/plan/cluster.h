// Tables of the GPUs and networks that `bert plan` knows by name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// A GPU. FLOP/s are those of the data sheet for dense matrices; 0: the GPU lacks the precision. Bandwidths are
/// measured values.
struct GpuModel {
  const char* name;
  double fp16_flops, bf16_flops, tf32_flops, fp32_flops;  // FLOP/s
  double memory;                                          // bytes
  double copy_bandwidth;                                  // bytes/s, read and written
  double link_bandwidth;                                  // bytes/s, bus bandwidth of an all-reduce inside a node
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

}  // namespace bert
