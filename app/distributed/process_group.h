// torch.distributed's process groups for this program: the same names, the same semantics. A null group is one process
// alone: it needs no launcher and no store, and every collective over it returns at once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

namespace bert {

using ProcessGroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

struct ProcessGroupOptions {
  std::string backend = "auto";        // gloo; nccl: GPU tensors over NCCL, CPU tensors over Gloo; auto: nccl with cuda
  std::string init_method = "env://";  // MASTER_ADDR and MASTER_PORT; or tcp://HOST:PORT; or file:///PATH; any of them
                                       // with ?rank=N&world_size=N behind
  int64_t rank = -1,
          world_size = -1;        // -1: from init_method, else from the environment (app/distributed/environment.h)
  int64_t timeout_seconds = 600;  // of the rendezvous, of connecting the ranks, and of every collective
  bool cuda = false;              // there are GPU tensors
  bool debug = false;             // compare every collective between ranks before it is issued
};

/// The group of all ranks; nullptr for one process. Returns when every rank has its connections. Rank 0 holds the store
/// of env:// and tcp://, unless the launcher does (TORCHELASTIC_USE_AGENT_STORE, at MASTER_ADDR and MASTER_PORT): on
/// the address that is named where that is one of its machine's, or localhost; for another name on all interfaces.
/// Where the launcher is not bertrun, which asks for the job's token, rank 0 warns on stderr that anybody may join. A
/// file of file:// must not be left over from an earlier job. Throws ConfigError on options that do not fit together
/// and on a GLOO_SOCKET_IFNAME that this machine does not have, PeerError after the timeout with the ranks that did not
/// come, and what to check; Preempted when a StopSignals hears a signal meanwhile. Collectives that fail throw
/// PeerError: app/distributed/monitored_backend.h.
ProcessGroupPtr init_process_group(const ProcessGroupOptions& options);

/// A process's place in a group.
struct Member {
  int rank = 0, size = 1;
  bool several_machines = false;
  std::string address = {};  // of this machine on the network of several; "": where its name leads
};

/// The group of those who meet at `store` under the same options, a part of init_process_group: Gloo, and NCCL where it
/// is asked for, every collective monitored. Unlike there, one rank alone is a group with collectives like any other.
ProcessGroupPtr make_process_group(const c10::intrusive_ptr<c10d::Store>& store, const Member& member,
                                   const ProcessGroupOptions& options);

int get_rank(const ProcessGroupPtr& group);
int get_world_size(const ProcessGroupPtr& group);

/// Returns when every rank has called it.
void barrier(const ProcessGroupPtr& group);
/// The same sum (or what `op` says) in `tensor` of every rank.
void all_reduce(const ProcessGroupPtr& group, const at::Tensor& tensor, c10d::ReduceOp op = c10d::ReduceOp::SUM);
/// The store that the ranks of a group have met in. Throws std::invalid_argument for a group that is not of this file's making.
c10::intrusive_ptr<c10d::Store> store_of(const ProcessGroupPtr& group);

/// Returns when `rank` has called it with the same name, which nobody may use again. Unlike with a collective, it may
/// take as long as it needs to get here: the others wait while its heartbeat goes on. Throws PeerError when that stands
/// still for the timeout, or when the store does not answer.
void wait_for_rank(const ProcessGroupPtr& group, int rank, const std::string& name, int64_t timeout_seconds);

/// A yes of any rank that all ranks learn of at the same call, without a wait: one call late.
class AgreedFlag {
 public:
  explicit AgreedFlag(ProcessGroupPtr group) : group_(std::move(group)) {}
  /// Every rank calls it equally often. Whether any rank gave true in an earlier call; for one process, or in this one.
  bool exchange(bool value);

 private:
  ProcessGroupPtr group_;
  at::Tensor sum_;
  c10::intrusive_ptr<c10d::Work> work_;
  bool answer_ = false;
};

}  // namespace bert
