// A small process that outlives a killed launcher until it has killed the remaining processes of the ranks.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

/// The environment variable that marks the processes of a job. It identifies them when no other link to the job is
/// left.
inline constexpr const char* kMarkVariable = "BERTRUN_JOB";

/// Makes a mark for this launcher. Under another bertrun the mark begins with the outer launcher's mark, so the outer
/// launcher also finds these processes.
std::string make_mark();

/// SIGKILLs every process of this user that has the mark. Returns their number.
int kill_marked(const std::string& mark);

/// Kills the processes of ranks after the launcher's death. Ranks die with the launcher by PR_SET_PDEATHSIG, but their
/// own children do not. The guard knows the process groups of the ranks and sees the launcher's end on a pipe. It kills
/// these groups, and by the mark in their environment also processes that have made sessions of their own.
class ProcessGuard {
 public:
  /// Forks the guard. Throws IoError.
  explicit ProcessGuard(const std::string& mark);
  /// Ends the guard without killing anything.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  void add(pid_t group);
  void remove(pid_t group);
  /// To be called on SIGCHLD. Replaces a guard that has died, with a note.
  void child_ended();

 private:
  void start();
  void tell(char what, pid_t group) const;
  const std::string mark_;
  std::set<pid_t> groups_;
  Descriptor pipe_;
  pid_t guard_ = 0;
};

}  // namespace bert
