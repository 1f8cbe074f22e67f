// The rank that is to blame for a round's end, chosen among the failures of all nodes.
#pragma once

#include <signal.h>

#include <chrono>
#include <optional>

#include "app/launcher/ranks/failure.h"

namespace bert {

/// Note [Culprit]
///
/// A rank that fails takes others with it, because their connections to it break. The others can end first: a rank's
/// sockets close before its process has ended, and the freeing of a GPU's memory or the end of an interpreter lies
/// between. Nodes report every failure, and the first report is not always the culprit's. So the likeliest cause
/// (cause_of) decides, and of equally likely ones the first that was heard. The time that a better one is waited for
/// depends on the likeliest failure so far:
///
///   killed, crashed, preempted, never started   none: no rank ends like this because of another rank
///   ended by itself, with a reason              kMoment: the report of a killed rank may be a moment behind
///   exit code 1 or SIGABRT without a reason     kSilence: it may be a reaction
///   failed because of another rank              kReaction, counted from the first such report; also a rank that
///                                               SIGPIPE has killed when it wrote to a closed connection
///
/// The wait ends early when no rank is left that can still fail by itself, because every rank has ended or is suspended
/// (SIGSTOP). No rank gets a signal during the wait, so a death by the launcher's own signals is never a cause, and the
/// culprit's own end is not masked. A lost node is a likelier cause than a reaction, and less likely than any other
/// failure (Rendezvous::lost).
///
/// All times are those of the host's steady clock when it hears a report. Clocks of two machines are never compared.
///
/// Limits. A program that ends with exit code 1 and writes no error file says nothing about its reason.
/// A PyTorch script without torch.distributed.elastic's `record` is such a program, and so is one that SIGABRT ends. The
/// first of several is named. A culprit that dies more than kReaction after the first reaction is not
/// named either; the job then ends with 69.
class Culprit {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Difference of the times at which two nodes' reports about one event arrive.
  static constexpr std::chrono::milliseconds kMoment{50};
  /// Twice the longest time between the two ends that is tested: a rank's closed connections and its death.
  static constexpr std::chrono::milliseconds kReaction{2000};
  /// From a closed connection's error that nobody records to the death of the rank behind it.
  static constexpr std::chrono::milliseconds kSilence{500};

  /// Adds a failure. Returns true if it is the likeliest so far.
  bool hear(const Failure& failure, Time now) {
    if (likeliest_ && cause_of(*likeliest_) <= cause_of(failure)) return false;
    likeliest_ = failure;
    decision_ = now + patience(failure);
    return true;
  }
  [[nodiscard]] bool heard() const { return likeliest_.has_value(); }
  /// The next two functions need a failure.
  [[nodiscard]] const Failure& likeliest() const { return *likeliest_; }
  /// The time at which the likeliest failure becomes the culprit.
  [[nodiscard]] Time decision() const { return decision_; }

 private:
  static std::chrono::milliseconds patience(const Failure& failure) {
    const Cause cause = cause_of(failure);
    if (cause == Cause::kConsequence) return kReaction;
    if (cause == Cause::kSilent) return kSilence;
    const bool crashed = failure.signal != 0 && failure.signal != SIGABRT;  // programs abort themselves
    return cause < Cause::kOwn || crashed || failure.pid == 0 ? std::chrono::milliseconds(0) : kMoment;
  }
  std::optional<Failure> likeliest_;
  Time decision_;
};

}  // namespace bert
