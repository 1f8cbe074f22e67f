// The processes of one node's ranks: started, watched and stopped together, with all processes that they have started.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/launcher/ranks/process_guard.h"
#include "app/launcher/ranks/worker_logs.h"

namespace bert {

/// Everything that is needed to start one rank.
struct WorkerSpec {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  WorkerFiles files;
  int state = -1;            // descriptor of make_rank_state, which the rank inherits
  std::set<int> processors;  // empty: the launcher's own
};

/// A rank that has exited.
struct WorkerExit {
  int64_t local_rank = 0;
  pid_t pid = 0;
  int status = 0;        // from waitpid
  bool stopped = false;  // the rank ended by a signal that the launcher sent
};

/// A rank that runs or is suspended.
struct RunningWorker {
  int64_t local_rank = 0;
  pid_t pid = 0;
};

/// The exit code, or 128 + n if signal n killed the process.
int exit_code_of(int status);

/// The running ranks. The destructor kills all that are left. Each rank leads a session of its own and dies with the
/// launcher.
class WorkerGroup {
 public:
  /// Raises this process' limit of open descriptors as far as allowed. The ranks get the original limit.
  explicit WorkerGroup(ProcessGuard& guard);
  ~WorkerGroup() { kill_all(); }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  /// Starts a rank. Throws InputMissing if its program cannot be run, IoError if an earlier step fails.
  void start(const WorkerSpec& spec, int64_t local_rank);
  [[nodiscard]] bool empty() const { return running_.empty(); }
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(running_.size()); }
  /// Sends a signal to all processes of all ranks.
  void signal_all(int number);
  /// Ranks that SIGSTOP has suspended: only SIGKILL and SIGCONT reach them.
  [[nodiscard]] std::vector<RunningWorker> suspended() const;
  /// Sends SIGKILL to the processes of one rank.
  void kill_one(pid_t pid);
  /// Ranks that have exited since the last call. After begin_stop() their remaining processes are killed.
  std::vector<WorkerExit> reap();
  /// Begins the stop of the group. Ranks that end by a signal of the launcher then count as `stopped`, and their
  /// remaining processes are killed.
  void begin_stop() { stopping_ = true; }
  /// Sends SIGKILL to all processes of all ranks and waits for them.
  void kill_all();

 private:
  ProcessGuard& guard_;
  rlimit descriptors_{};
  std::map<pid_t, int64_t> running_;  // value: local rank
  std::set<int> sent_;                // signals sent so far
  bool stopping_ = false;
};

}  // namespace bert
