// The processes of one node's ranks: started together, watched, stopped together with all that they have started.
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

/// All that is needed to start one rank.
struct WorkerSpec {
  std::vector<std::string> command;
  std::map<std::string, std::string> environment;
  WorkerFiles files;
  int state = -1;            // make_rank_state's, which the rank inherits
  std::set<int> processors;  // empty = as the launcher
};

/// A rank that has ended.
struct WorkerExit {
  int64_t local_rank = 0;
  pid_t pid = 0;
  int status = 0;        // of waitpid
  bool stopped = false;  // by a signal that we sent
};

/// A rank that runs, or is stopped.
struct RunningWorker {
  int64_t local_rank = 0;
  pid_t pid = 0;
};

/// 0, the exit code, or 128 + n for signal n.
int exit_code_of(int status);

/// The running ranks; whatever is left is killed when it goes out of scope. Each rank leads a session of its own and
/// dies with the launcher.
class WorkerGroup {
 public:
  /// Raises this process' limit of descriptors as far as it may; the ranks get the one that was there.
  explicit WorkerGroup(ProcessGuard& guard);
  ~WorkerGroup() { kill_all(); }
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  /// Starts a rank. Throws InputMissing when its program cannot be run, IoError when a step before that fails.
  void start(const WorkerSpec& spec, int64_t local_rank);
  [[nodiscard]] bool empty() const { return running_.empty(); }
  /// Sends a signal to every rank's processes.
  void signal_all(int number);
  /// Ranks that a signal has stopped (SIGSTOP): no other signal than SIGKILL and SIGCONT reaches them.
  [[nodiscard]] std::vector<RunningWorker> suspended() const;
  /// SIGKILL to one rank's processes.
  void kill_one(pid_t pid);
  /// The rank of whose session the process is.
  [[nodiscard]] std::optional<RunningWorker> rank_of(pid_t process) const;
  /// Those that have ended since the last call; in a stopped group their leftover processes are killed with them.
  std::vector<WorkerExit> reap();
  /// From now on ranks that end by a signal of ours are `stopped`, and their leftovers are killed.
  void begin_stop() { stopping_ = true; }
  /// SIGKILL to every rank and all of its processes, and waits for them.
  void kill_all();

 private:
  ProcessGuard& guard_;
  rlimit descriptors_{};
  std::map<pid_t, int64_t> running_;  // to local rank
  std::set<int> sent_;                // signals
  bool stopping_ = false;
};

}  // namespace bert
