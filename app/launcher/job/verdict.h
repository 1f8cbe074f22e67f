// The exit code of a job, or of one node's part of it.
#pragma once

#include "app/system/exit_codes.h"

namespace bert {

/// What the ranks of a node, or of a job, have done that were to save.
struct SaveResult {
  bool saved = false;  // one has said 75
  int failed = kOk;    // exit code of the first that could not
  bool operator==(const SaveResult&) const = default;
};

/// A job that ends because of a signal, or because a rank was preempted (75), waits for its ranks to save. Whoever sees
/// 75 runs it again, so that is its code only when a rank says it and none says otherwise: a full disk, or a rank that
/// was still saving when its time was up, would be no better in the next run, and so on without end. Where no rank says
/// 75, a reason that one gives is the code, such as 69: it has lost another rank or the store. A signal's own 128 + n is
/// left to programs that end by it, or with a code of their own making.
class Verdict {
 public:
  /// `code` is the end's own: a failure's, 75, or 128 + n after signal n. `saving`: ranks have a say in it.
  explicit Verdict(int code = kOk, bool saving = false) : code_(code), saving_(saving) {
    said_.saved = code == kPreempted;
  }

  /// A rank has ended with this code. Returns whether it is the first that could not save, or the first by itself.
  bool take(int code) {
    if (!saving_ || code == kOk || code == code_) return false;
    if (code == kPreempted) {
      said_.saved = true;
      return false;
    }
    // One that could not because of others is a consequence, of whichever is heard of first.
    if (said_.failed != kOk && (said_.failed != kPeerFailure || code == kPeerFailure)) return false;
    said_.failed = code;
    return true;
  }
  /// A node has ended.
  void take(const SaveResult& node) {
    if (node.saved) take(kPreempted);
    take(node.failed);
  }
  [[nodiscard]] int result() const {
    if (!saving_) return code_;
    if (said_.saved) return said_.failed != kOk ? said_.failed : kPreempted;
    return kLowestReason <= said_.failed && said_.failed <= kHighestReason ? said_.failed : code_;
  }
  /// What was taken: on another node it may mean more.
  [[nodiscard]] const SaveResult& said() const { return said_; }

 private:
  static constexpr int kLowestReason = 64, kHighestReason = 78;  // of <sysexits.h>, as exit_codes.h has them
  int code_;
  bool saving_;
  SaveResult said_;
};

}  // namespace bert
