// Which rank this process is, from what its launcher has put into the environment.
#pragma once

#include <cstdint>
#include <string>

namespace bert {

struct DistributedEnvironment {
  int64_t rank = 0, world_size = 1, local_rank = 0;
  bool several_machines = false;  // as far as the launcher says
  std::string master_addr;        // where rank 0 is
  int64_t master_port = 0;
  std::string source;  // the variables that said so, for messages; empty for one process alone
};

/// The first of these that is there:
///   RANK, WORLD_SIZE, LOCAL_RANK            bertrun, torchrun
///   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK  Open MPI's mpirun
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID  Slurm's srun (a batch script without it is one process)
/// else one process. MASTER_ADDR and MASTER_PORT say where rank 0 is; where they are unset, under Slurm it is the first
/// host of SLURM_STEP_NODELIST or SLURM_JOB_NODELIST and a port made of SLURM_JOB_ID and SLURM_STEP_ID, otherwise
/// 127.0.0.1:29500, which serves one machine. Throws ConfigError on values that do not fit together, and where several machines take part and
/// nothing says where rank 0 is.
DistributedEnvironment distributed_environment();

/// master_addr and master_port from MASTER_ADDR and MASTER_PORT alone, for ranks that are told the rest.
void read_master(DistributedEnvironment& environment);

/// The first host of a Slurm node list: "gpu[03-07,12],login1" gives "gpu03". Throws ConfigError when it names none.
std::string first_slurm_host(const std::string& node_list);

}  // namespace bert
