// A small process that outlives a killed launcher just long enough to kill what the launcher left behind.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

/// The variable that marks the processes of a job, for the time when nothing else ties them to it.
inline constexpr const char* kMarkVariable = "BERTRUN_JOB";

/// A mark of this launcher's own. Under another bertrun it begins with that one's, which so finds these processes too.
std::string make_mark();

/// SIGKILLs every process of this user with the mark. Returns how many.
int kill_marked(const std::string& mark);

/// Ranks die with the launcher by PR_SET_PDEATHSIG; their own children do not. The guard is told which ranks run, sees
/// the launcher's end on a pipe, and then kills their process groups, and by the mark in their environment also those
/// that have made sessions of their own.
class ProcessGuard {
 public:
  /// Forks the guard. Throws IoError.
  explicit ProcessGuard(const std::string& mark);
  /// Dismisses the guard without a kill.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  void add(pid_t group);
  void remove(pid_t group);
  /// On SIGCHLD: a guard that has died is replaced, with a note.
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
