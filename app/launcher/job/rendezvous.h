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

#include "app/launcher/job/verdict.h"
#include "app/launcher/ranks/failure.h"
#include "app/launcher/settings/options.h"

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
  enum Kind { kStart, kRestart, kEnd, kLeave };
  Kind kind = kStart;
  Assignment assignment;  // kStart
  std::string reason;     // kRestart, kEnd
  bool failed = false;    // kRestart: a rank or node has failed (else the membership changes)
  int exit_code = 0;      // kEnd; kLeave: the job's, now that every node has stopped
  int signal = 0;         // kEnd: to be forwarded to the ranks first
};

/// What is said of a signal that comes while nodes still meet.
inline constexpr const char* kNoRankRuns = " while nodes meet and no rank runs; nothing is lost, run again";

/// Rules: torchrun's, with these differences. A failure restarts all nodes together and TORCHELASTIC_RESTART_COUNT is
/// the same on all; a restart with the same nodes does not wait for --rdzv-conf last_call_timeout; the first failure
/// that cannot be restarted, a signal, or a lost node ends all nodes; exit code 75, and a rank that cannot be started,
/// are never restarted; what ranks say when they are to save counts (verdict.h); a signal while nodes meet ends the job
/// with 75.
class Rendezvous {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using NodeId = int64_t;
  using Send = std::function<void(NodeId, const JobOrder&)>;

  struct Limits {
    int64_t max_restarts = 0;
    double stop_seconds = 60;  // that nodes have to stop their ranks before a restart
  };

  /// `first` stays first in the order of ranks, when it is given (it is where rank 0's own store must be).
  Rendezvous(const RendezvousConfig& config, const Limits& limits, Time now, Send send,
             std::optional<NodeId> first = std::nullopt);

  /// A node joins. Returns why it is refused, or "".
  [[nodiscard]] std::string join(NodeId id, const NodeInfo& info, Time now);
  /// The ranks that the node ran in `round` are all gone, as kRestart or kEnd ordered; without such an order the node
  /// is lost. `saved` is what they said after kEnd. What is told of another round than the node's last is ignored, here
  /// and below.
  void stopped(NodeId id, int64_t round, const SaveResult& saved, Time now);
  void succeeded(NodeId id, int64_t round);
  void failed(NodeId id, int64_t round, const Failure& failure, Time now);
  void interrupted(NodeId id, int signal);
  /// The node cannot be reached any more.
  void lost(NodeId id, const std::string& why, Time now);
  /// Ends the job from the outside.
  void end(int exit_code, const std::string& reason, int signal = 0);
  /// Completes or gives up a round whose time has come.
  void tick(Time now);

  /// Waits no longer for nodes that have not stopped: the job has ended, and all may leave.
  void leave();

  /// The job has ended, every node has stopped or is gone, and all that are left have been told to leave.
  [[nodiscard]] bool finished() const { return left_; }
  [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
  /// The job has ended because a rank said 75, unasked: the others are still saving.
  [[nodiscard]] bool preempted() const { return preempted_; }
  /// Nodes that have not stopped yet, for a message.
  [[nodiscard]] std::string unfinished_nodes() const;
  /// Who is there and who is missing while a round forms, else "".
  [[nodiscard]] std::string waiting_for() const;

 private:
  enum class State { kForming, kRunning, kRestarting, kEnded };
  struct Node {
    NodeInfo info;
    bool member = false;  // of the running round
    bool done = false;    // its ranks have all ended well
    bool stopped = true;  // it has no ranks, or they are gone, as ordered
    int64_t round = -1;   // the last that it was to start
  };
  void complete(Time now);
  void restart(const std::string& reason, bool failed, Time now);
  void form_again(Time now);
  [[nodiscard]] bool all_stopped() const;
  [[nodiscard]] int64_t least() const { return config_.dynamic ? config_.min_nodes : config_.max_nodes; }
  [[nodiscard]] bool restarts_left() const { return restarts_ < limits_.max_restarts; }
  [[nodiscard]] std::string restarting() const;
  [[nodiscard]] int64_t members() const;
  static std::string name_of(const Node& node);

  const RendezvousConfig config_;
  const Limits limits_;
  const Send send_;
  const std::optional<NodeId> first_;
  State state_ = State::kForming;
  std::map<NodeId, Node> nodes_;  // ids grow: the order of joining
  int64_t round_ = 0, restarts_ = 0;
  Time join_deadline_, stop_deadline_;
  std::optional<Time> last_call_;  // when a round with at least MIN nodes is complete
  Verdict verdict_;                // from the job's end on
  bool preempted_ = false, left_ = false;
};

}  // namespace bert
