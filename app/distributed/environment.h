// The rank of this process, from the environment variables of its launcher.
#pragma once

#include <cstdint>
#include <string>

namespace bert {

struct DistributedEnvironment {
  int64_t rank = 0, world_size = 1, local_rank = 0;
  int64_t local_size = 1;         // ranks on this machine; world_size if the launcher does not tell
  bool several_machines = false;  // false if the launcher does not tell
  std::string master_addr;        // host of rank 0
  int64_t master_port = 0;
  std::string source;  // names of the variables, for messages; empty for a single process
};

/// Reads the first of these sets of variables that is present:
///   RANK, WORLD_SIZE, LOCAL_RANK            bertrun, torchrun
///   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK  Open MPI's mpirun
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID  Slurm's srun (a batch script without srun is one process)
/// Without any of them this is a single process. MASTER_ADDR and MASTER_PORT are the address of rank 0. If they are
/// unset, it is, under Slurm, the first host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST with a port computed from
/// SLURM_JOB_ID and SLURM_STEP_ID; otherwise 127.0.0.1:29500, which serves one machine. Throws ConfigError if values do
/// not fit together, or if ranks on several machines have no address of rank 0.
DistributedEnvironment distributed_environment();

/// Sets master_addr and master_port from MASTER_ADDR and MASTER_PORT alone, for callers that know the rank and the
/// size.
void read_master(DistributedEnvironment& environment);

/// The first host of a Slurm node list: "gpu03" of "gpu[03-07,12],login1". Throws ConfigError if the list names no
/// host.
std::string first_slurm_host(const std::string& node_list);

struct StorePlace {
  std::string file;  // path of file://; otherwise host and port are set
  std::string host;
  int64_t port = 0;

  [[nodiscard]] std::string text() const { return file.empty() ? host + ":" + std::to_string(port) : file; }
};

/// Splits "?rank=0&world_size=2" off an init_method, as torch does, and sets the values that are not set yet. Throws
/// ConfigError.
std::string take_query(const std::string& method, int64_t& rank, int64_t& world_size);

/// The place that env://, tcp://HOST:PORT or file:///PATH names. Throws ConfigError.
StorePlace parse_init_method(const std::string& text, const DistributedEnvironment& environment);

}  // namespace bert
