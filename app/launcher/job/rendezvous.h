// The state machine of a job: its nodes, their ranks, its restarts and its end. The node that hosts the rendezvous runs
// it. It has no sockets and no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "app/launcher/job/culprit.h"
#include "app/launcher/job/verdict.h"
#include "app/launcher/ranks/failure.h"
#include "app/launcher/settings/options.h"

namespace bert {

/// A node's facts about itself, sent when it joins.
struct NodeInfo {
  std::string host;
  int64_t pid = 0;
  int64_t node_rank = -1;  // static rendezvous only
  std::string role = "default";
  int64_t local_world_size = 1;
};

/// A failed rank, as its node reports it.
struct FailureReport {
  int64_t round = 0;
  Failure failure;
  int64_t running = 0;  // ranks of the node that can still fail by themselves: neither ended nor suspended
};

/// An order of the job to a node.
struct JobOrder {
  enum Kind { kStart, kRestart, kEnd, kLeave };
  Kind kind = kStart;
  Assignment assignment;  // kStart
  std::string reason;     // kRestart, kEnd
  bool failed = false;    // kRestart: true if a rank or node has failed, false if the set of nodes changes
  int exit_code = 0;      // kEnd: of this end; kLeave: of the job, after every node has stopped
  int signal = 0;         // kEnd: to be forwarded to the ranks first
};

/// Text after the name of a signal that comes before any rank runs.
inline constexpr const char* kNoRankRuns = " while nodes meet and no rank runs; nothing is lost, run again";

/// Rules: torchrun's, with these differences.
/// - A failure restarts all nodes together, and TORCHELASTIC_RESTART_COUNT is the same on all.
/// - A restart with the same nodes does not wait for --rdzv-conf last_call_timeout.
/// - A lost node, or the culprit among the failed ranks (Note [Culprit]), restarts all nodes, or ends them if no
///   restart is left. A signal ends them.
/// - Exit code 75, and a rank that cannot be started, are never restarted.
/// - SIGTERM on one of more nodes than the job needs takes that node out: its ranks save with all others, and the others
///   start again from there. Of the node that hosts the job, and any other signal, it ends the job.
/// - When ranks have to save, their exit codes count (verdict.h).
/// - A signal before any rank runs ends the job with 75.
class Rendezvous {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using NodeId = int64_t;
  static constexpr NodeId kHost = 0;  // the node that hosts the job; other nodes have larger numbers
  using Send = std::function<void(NodeId, const JobOrder&)>;

  struct Limits {
    int64_t max_restarts = 0;
    double stop_seconds = 60;  // for nodes to stop their ranks before a restart
  };

  Rendezvous(const RendezvousConfig& config, const Limits& limits, Time now, Send send);

  /// Adds a node. Returns the reason why the node is refused, or "".
  [[nodiscard]] std::string join(NodeId id, const NodeInfo& info, Time now);
  /// All ranks that the node ran in `round` have ended, as kRestart or kEnd ordered. Without such an order the node is
  /// lost. `saved` is their result after kEnd. This function and the next two ignore a report about any other round
  /// than the node's last.
  void stopped(NodeId id, int64_t round, const SaveResult& saved, Time now);
  void succeeded(NodeId id, int64_t round);
  void failed(NodeId id, const FailureReport& report, Time now);
  void interrupted(NodeId id, int signal, Time now);
  /// The node cannot be reached any more.
  void lost(NodeId id, const std::string& why, Time now);
  /// Completes a round, gives it up, or decides who is its culprit, if the time has come.
  void tick(Time now);
  /// After a failure: the time of the decision, when tick() is due.
  [[nodiscard]] std::optional<Time> decides_at() const;

  /// Stops waiting for nodes that have not stopped. The job has ended, and all nodes may leave.
  void leave();

  /// True if the job has ended, every node has stopped or is gone, and all remaining nodes have been told to leave.
  [[nodiscard]] bool finished() const { return left_; }
  [[nodiscard]] bool ended() const { return state_ == State::kEnded; }
  /// True if the job has ended because a rank exited with 75 without a signal from bertrun. The other ranks are still
  /// saving.
  [[nodiscard]] bool preempted() const { return preempted_; }
  /// Names of the nodes that have not stopped yet, for a message.
  [[nodiscard]] std::string unfinished_nodes() const;
  /// While a round forms: the nodes that are present and the nodes that are missing. Else "".
  [[nodiscard]] std::string waiting_for() const;

 private:
  enum class State { kForming, kRunning, kRestarting, kEnded };
  struct Node {
    NodeInfo info;
    bool member = false;              // takes part in the running round
    bool done = false;                // all its ranks have exited with 0
    bool stopped = true;              // it has no ranks, or they have ended as ordered
    std::optional<int> leaving = {};  // the signal that takes it out of the job, which goes on
    int64_t round = -1;               // the last round that it was told to start
    int64_t running = 0;              // its ranks that can still fail by themselves
  };
  void end(int exit_code, const std::string& reason, int signal = 0);
  void complete(Time now);
  void decide(Time now);
  void conclude(Time now);
  void restart(const std::string& reason, bool failed, Time now);
  void form_again(Time now);
  [[nodiscard]] bool all_stopped() const;
  [[nodiscard]] bool goes_on_without(NodeId id) const;
  void take_out(NodeId id, int signal, const std::string& what, Time now);
  [[nodiscard]] int64_t least() const { return config_.dynamic ? config_.min_nodes : config_.max_nodes; }
  [[nodiscard]] bool restarts_left() const { return restarts_ < limits_.max_restarts; }
  [[nodiscard]] std::string restarting() const;
  [[nodiscard]] int64_t members() const;
  static std::string name_of(const Node& node);

  const RendezvousConfig config_;
  const Limits limits_;
  const Send send_;
  State state_ = State::kForming;
  std::map<NodeId, Node> nodes_;  // ids grow in the order of joining
  int64_t round_ = 0, restarts_ = 0;
  Time join_deadline_, stop_deadline_;
  std::optional<Time> last_call_;  // time at which a round with at least MIN nodes is complete
  Culprit culprit_;                // of the running round
  Verdict verdict_;                // valid after the job's end
  bool preempted_ = false, left_ = false;
};

}  // namespace bert
