// A small process that outlives a killed launcher just long enough to kill what the launcher left behind.
#pragma once

#include <sys/types.h>

#include <string>

namespace bert {

/// SIGKILLs every process of this user whose TORCHELASTIC_ERROR_FILE lies in `directory`. Returns how many.
int kill_marked(const std::string& directory);

/// Ranks die with the launcher by PR_SET_PDEATHSIG; their own children do not. The guard is told which ranks run, sees
/// the launcher's end on a pipe, and then kills their process groups, and by the mark in their environment also those
/// that have made sessions of their own.
class ProcessGuard {
 public:
  /// Forks the guard. Throws IoError.
  explicit ProcessGuard(const std::string& directory);
  /// Dismisses the guard without a kill.
  ~ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;

  void add(pid_t group) { tell('+', group); }
  void remove(pid_t group) { tell('-', group); }

 private:
  void tell(char what, pid_t group);
  int pipe_ = -1;
  pid_t guard_ = 0;
};

}  // namespace bert
