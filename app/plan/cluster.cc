#include "app/plan/cluster.h"

#include "app/system/errors.h"

namespace bert {

const std::vector<GpuModel>& gpu_models() {
  // Copy bandwidth: 4.3 TB/s was measured on an H200; the others are 90 % of the data sheet's bandwidth, as there. Link
  // bandwidth: the bus bandwidth of NCCL inside a node. 478 GB/s on 8 H100 (nccl-tests issues 290 and 347), 230 on 8
  // A100, 120 on the 16 V100 of a DGX-2.
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
                       : precision == "tf32"           ? gpu.tf32_flops
                                                       : gpu.fp32_flops;
  if (flops == 0) throw ConfigError(std::string("precision ") + precision + ": " + gpu.name + " GPUs do not have it");
  return flops;
}

}  // namespace bert
