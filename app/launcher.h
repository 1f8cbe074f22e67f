// bertrun: starts the ranks of one program on this machine, with the environment that torchrun gives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

struct LaunchConfig {
  int64_t nnodes = 1;
  int64_t nproc_per_node = 1;
  int64_t node_rank = 0;
  std::string master_addr = "127.0.0.1";
  int64_t master_port = 29500;
  bool standalone = false;  // one node, a free port
  bool no_python = false;
  double shutdown_timeout_seconds = 30;  // TORCH_ELASTIC_SHUTDOWN_TIMEOUT: between SIGTERM and SIGKILL
  std::vector<std::string> command;      // program and its arguments
};

/// bertrun's command line. Throws UsageError. Returns false when --help was asked for and printed.
bool parse_launch_command(int argc, char** argv, LaunchConfig& config);

/// Runs all ranks of this node to their end and returns the exit code: 0, the first failing rank's, or 128 + n for a
/// signal. When one fails, or a signal arrives here, the others get SIGTERM and, after the shutdown time, SIGKILL. No
/// rank outlives this process.
int launch(const LaunchConfig& config);

}  // namespace bert
