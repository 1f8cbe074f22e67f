// The exit code of a job, or of one node's part of it.
#pragma once

#include "app/system/exit_codes.h"

namespace bert {

/// Result of saving for the ranks of a node or of a job.
struct SaveResult {
  bool saved = false;  // true if one rank has exited with 75
  int failed = kOk;    // exit code of the first rank that could not save
  bool operator==(const SaveResult&) const = default;
};

/// The exit code of a job that waits for its ranks to save, after a signal or after a rank was preempted (75). Callers
/// run a job again when they see 75. So the code is 75 only if at least one rank exits with 75 and no rank fails.
/// Otherwise a full disk, or a rank that needs more time than it gets, would make the job repeat forever. If no rank
/// exits with 75, the code is the reason that a rank gives, such as 69 (it lost another rank or the store). The code
/// 128 + n stays for programs that end by signal n or with a code outside 64 to 78.
class Verdict {
 public:
  /// `code`: the exit code of the end itself: a failure's, 75, or 128 + n after signal n. `saving`: true if the exit
  /// codes of the ranks count.
  explicit Verdict(int code = kOk, bool saving = false) : code_(code), saving_(saving) {
    save_result_.saved = code == kPreempted;
  }

  /// Adds the exit code of a rank. Returns true if the rank is the first that could not save, or the first that failed
  /// for a reason of its own.
  bool take(int code) {
    if (!saving_ || code == kOk || code == code_) return false;
    if (code == kPreempted) {
      save_result_.saved = true;
      return false;
    }
    // A rank that failed because of other ranks is a consequence. It gives way to a rank that failed by itself.
    if (save_result_.failed != kOk && (save_result_.failed != kPeerFailure || code == kPeerFailure)) return false;
    save_result_.failed = code;
    return true;
  }
  /// Adds the result of a node.
  void take(const SaveResult& node) {
    if (node.saved) take(kPreempted);
    take(node.failed);
  }
  [[nodiscard]] int result() const {
    if (!saving_) return code_;
    if (save_result_.saved) return save_result_.failed != kOk ? save_result_.failed : kPreempted;
    return kLowestReason <= save_result_.failed && save_result_.failed <= kHighestReason ? save_result_.failed : code_;
  }
  /// The result so far. Another node may combine it with its own.
  [[nodiscard]] const SaveResult& save_result() const { return save_result_; }

 private:
  static constexpr int kLowestReason = 64, kHighestReason = 78;  // range of <sysexits.h>, see exit_codes.h
  int code_;
  bool saving_;
  SaveResult save_result_;
};

}  // namespace bert
