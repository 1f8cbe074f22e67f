// Who takes part in a job, with which ranks, and when it restarts or ends: a state machine without sockets or clocks of
// its own, which the node that hosts the rendezvous runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/launcher/failure.h"
#include "app/launcher/options.h"

namespace bert {

/// What a node says about itself when it joins.
struct NodeInfo {
  std::string host;
  int64_t pid = 0;
  int64_t node_rank = -1;  // static only
  std::string role = "default";
  int64_t local_world_size = 1;
};

/// What the job tells a node.
struct JobOrder {
  enum Kind { kStart, kRestart, kEnd };
  Kind kind = kStart;
  Assignment assignment;  // kStart
  std::string reason;     // kRestart, kEnd
  bool failed = false;    // kRestart: a rank or node has failed (else the membership changes)
  int exit_code = 0;      // kEnd
  int signal = 0;         // kEnd: to be forwarded to the ranks first
};

/// Rules: torchrun's, with these differences. A failure restarts all nodes together and TORCHELASTIC_RESTART_COUNT is
/// the same on all; a restart with the same nodes does not wait for --rdzv-conf last_call_timeout; the first failure
/// that cannot be restarted, a signal, or a lost node ends all nodes; exit code 75, and a rank that cannot be started,
/// are never restarted.
class Rendezvous {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using NodeId = int64_t;
  using Send = std::function<void(NodeId, const JobOrder&)>;

  /// `first` stays first in the order of ranks, when it is given (it is where rank 0's own store must be).
  Rendezvous(const RendezvousConfig& config, int64_t max_restarts, Time now, Send send,
             std::optional<NodeId> first = std::nullopt);

  /// A node joins. Returns why it is refused, or "".
  [[nodiscard]] std::string join(NodeId id, const NodeInfo& info, Time now);
  /// The node's ranks are all gone, after kRestart or kEnd.
  void stopped(NodeId id, Time now);
  void succeeded(NodeId id);
  void failed(NodeId id, const Failure& failure);
  void interrupted(NodeId id, int signal);
  /// The node cannot be reached any more.
  void lost(NodeId id, const std::string& why, Time now);
  /// Ends the job from the outside.
  void end(int exit_code, const std::string& reason, int signal = 0);
  /// Completes or gives up a round whose time has come.
  void tick(Time now);

  /// The job has ended and every node has stopped or is gone.
  [[nodiscard]] bool finished() const;
  [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
  /// Nodes that have not stopped yet, for a message.
  [[nodiscard]] std::string unfinished_nodes() const;

 private:
  enum class State { kForming, kRunning, kRestarting, kEnded };
  struct Node {
    NodeInfo info;
    bool member = false;   // of the running round
    bool done = false;     // its ranks have all ended well
    bool stopped = false;  // its ranks are gone, as ordered
  };
  void complete(Time now);
  void restart(const std::string& reason, bool failed);
  void form_again(Time now);
  [[nodiscard]] bool restarts_left() const { return restarts_ < max_restarts_; }
  [[nodiscard]] std::string restarting() const;
  [[nodiscard]] std::string missing_nodes() const;
  [[nodiscard]] int64_t members() const;
  static std::string name_of(const Node& node);

  const RendezvousConfig config_;
  const int64_t max_restarts_;
  const Send send_;
  const std::optional<NodeId> first_;
  State state_ = State::kForming;
  std::map<NodeId, Node> nodes_;  // ids grow: the order of joining
  int64_t round_ = 0, restarts_ = 0;
  Time join_deadline_;
  std::optional<Time> last_call_;  // when a round with at least MIN nodes is complete
};

}  // namespace bert
