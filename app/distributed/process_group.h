// Process groups with the names and the semantics of torch.distributed. A null group is a single process: it needs no
// launcher and no store, and every collective over it returns at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "optim/config.h"

namespace bert {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

struct ProcessGroupOptions {
  CollectiveBackend backend = CollectiveBackend::kOfDevice;  // kNccl: GPU tensors over NCCL, CPU tensors over Gloo
  std::string init_method = "env://";  // MASTER_ADDR and MASTER_PORT; or tcp://HOST:PORT; or file:///PATH; each may
                                       // end in ?rank=N&world_size=N
  int64_t rank = -1,
          world_size = -1;         // -1: from init_method, else from the environment (app/distributed/environment.h)
  int64_t timeout_seconds = 600;   // of the rendezvous, of the connections, and of every collective
  c10::Device device = c10::kCPU;  // of this rank's tensors; NCCL is bound to it
  bool connect_on_demand = false;  // Gloo connects two ranks when they first exchange data, as it does beside NCCL
  bool debug = false;              // compare every collective between the ranks before it is issued
};

/// Makes the group of all ranks and returns when every rank has its connections; nullptr for a single process. Rank 0
/// holds the store of env:// and tcp://, unless the launcher does (TORCHELASTIC_USE_AGENT_STORE, at MASTER_ADDR and
/// MASTER_PORT). The store listens on the address alone if it is localhost or an address of rank 0's machine; for
/// another name it listens on all interfaces. Rank 0 warns on stderr that anybody may join, unless bertrun serves the
/// store, to its own user alone. Earlier ranks may have used the store: Note [Rounds]. Throws
/// ConfigError if options do not fit together, two processes have one rank, or GLOO_SOCKET_IFNAME names an interface
/// that this machine lacks; PeerError after the timeout, with the ranks that did not come and advice; Preempted if
/// StopSignals gets a signal meanwhile. A collective that fails throws PeerError: app/distributed/monitored_backend.h.
ProcessGroupPtr init_process_group(const ProcessGroupOptions& options);

/// The place of a process in a group.
struct Member {
  int rank = 0, size = 1;
  bool several_machines = false;
  std::string address = {};  // of this machine, as the other machines reach it; "": the address of its name
};

/// Makes the group of the ranks that meet at `store` with the same options: Gloo, and NCCL if the options ask for it,
/// with every collective monitored. init_process_group() uses it; here a single rank too is a group with real
/// collectives.
ProcessGroupPtr make_process_group(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                   const ProcessGroupOptions& options);

int get_rank(const ProcessGroupPtr& group);
int get_world_size(const ProcessGroupPtr& group);

/// Returns when every rank has called it.
void barrier(const ProcessGroupPtr& group);
/// Reduces `tensor` over all ranks, in place: the sum, or as `op` says.
void all_reduce(const ProcessGroupPtr& group, const at::Tensor& tensor, c10d::ReduceOp op = c10d::ReduceOp::SUM);

/// The store at which the ranks of a group have met. Throws std::invalid_argument for a group that this file has not
/// made.
c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroupPtr& group);

/// Something that a rank tells the others through the store.
struct Announcement {
  int rank = 0;      // the rank that tells it
  std::string name;  // unique; messages say "rank 0, for whose NAME rank 1 waits"
  int64_t timeout_seconds;
};

/// Calls `text` in the rank of the announcement alone and returns its result on every rank. Unlike in a collective, that
/// rank may take as long as it needs: the others wait as long as its heartbeat continues. Throws PeerError if the
/// heartbeat stops for the timeout, or if the store does not answer.
std::string announced(const ProcessGroupPtr& group, const Announcement& announcement,
                      const std::function<std::string()>& text);

/// announced() without a text: waits until `rank` has called it with the same name.
void wait_for_rank(const ProcessGroupPtr& group, int rank, const std::string& name, int64_t timeout_seconds);

/// A flag that is OR-ed over all ranks asynchronously: exchange() returns the result of the previous call, so no rank
/// waits.
class AgreedFlag {
 public:
  explicit AgreedFlag(ProcessGroupPtr group) : group_(std::move(group)) {}
  /// True if any rank has passed true in the previous call; for a single process, in this call. Every rank must call it
  /// equally often.
  bool exchange(bool value);

 private:
  ProcessGroupPtr group_;
  at::Tensor sum_;
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace bert
