#include "app/plan/step_model.h"

#include <algorithm>
#include <cmath>

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

}  // namespace bert
