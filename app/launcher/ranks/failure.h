// The known facts about a rank that failed: for one line on stderr, for error.json, and for the other nodes.
#pragma once

#include <cstdint>
#include <string>

#include "app/launcher/ranks/worker_environment.h"
#include "app/launcher/ranks/worker_group.h"
#include "data/io/descriptor.h"

namespace bert {

/// `phase` and `last_collective` are the members of these names in TORCHELASTIC_ERROR_FILE, at the top level or in the
/// message's extraInfo; else the values that the rank had published before it died. `message` is its exception: a
/// string, or an object of torch.distributed.elastic's ErrorHandler.
struct Failure {
  int64_t rank = 0, local_rank = 0, pid = 0;  // pid 0: the rank could not be started
  std::string host;
  int exit_code = 0;  // 128 + n for a death by signal n
  int signal = 0;
  // Seconds since 1970, by the node's own clock: from the error file, else the time when the death was seen.
  int64_t time = 0;
  std::string message, phase, last_collective, error_file;
  std::string note;  // further facts that the launcher knows
};

/// The traces that a rank leaves.
struct RankTraces {
  std::string error_file;
  Descriptor state;  // see app/system/rank_state.h
};

/// Gathers the known facts about an exit. A missing or unreadable error file is no error.
Failure describe_exit(const LaunchConfig& config, const Assignment& assignment, const WorkerExit& exit,
                      const RankTraces& traces);

/// The kind of a failure, to choose among failures that are seen within a moment. The likeliest cause comes first:
/// preempted (exit code 75: the job ends in any case), killed from outside (SIGKILL), failed by itself (a crash, or an
/// exit with a reason), ended without a reason (exit code 1 or SIGABRT alone: NCCL's watchdog aborts, and a script of
/// PyTorch exits with 1, also where another rank has failed), failed because another rank did (exit code 69, or an error
/// that mentions a peer).
enum class Cause { kPreempted, kKilled, kOwn, kSilent, kConsequence };
Cause cause_of(const Failure& failure);

/// Orders two deaths if it is unknown which was first. Returns true if `a` is the likelier cause: by cause_of, then by
/// the earlier time in the error files (as torchrun does), then a death by signal before an exit, then the lower rank.
/// SIGABRT counts as an exit, because programs abort themselves.
bool likelier_cause(const Failure& a, const Failure& b);

/// "rank 1 (local rank 1, host h, pid 7) was killed by signal 9 (SIGKILL) in phase forward: ..."
std::string one_line(const Failure& failure);

/// Writes or completes the failed rank's error file. The rank's own members stay. Added members: rank, local_rank,
/// host, pid, exit_code, signal, time, phase and last_collective, and a message in ErrorHandler's form if the rank
/// wrote none. An unreadable file is first renamed to error.json.unread. The result is also copied to this process' own
/// TORCHELASTIC_ERROR_FILE, as torchrun does. Write errors are ignored, because the job must end in any case.
void complete_error_file(const Failure& failure);

}  // namespace bert
