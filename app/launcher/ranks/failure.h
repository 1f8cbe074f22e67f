// What is known about a rank that failed: for one line on stderr, for error.json, and for the other nodes.
#pragma once

#include <cstdint>
#include <string>

#include "app/launcher/ranks/worker_environment.h"
#include "app/launcher/ranks/worker_group.h"
#include "data/io/descriptor.h"

namespace bert {

/// `phase` and `last_collective` are what the rank itself wrote as members of these names into TORCHELASTIC_ERROR_FILE,
/// at the top or in the message's extraInfo, else what it had published when it died; `message` is its exception, in
/// the form of torch.distributed.elastic's ErrorHandler or as a string.
struct Failure {
  int64_t rank = 0, local_rank = 0, pid = 0;  // pid 0: it could not be started
  std::string host;
  int exit_code = 0;  // 128 + signal for a death by signal
  int signal = 0;
  int64_t time = 0;  // seconds since 1970: the error file's, else when the death was seen; on its own node
  std::string message, phase, last_collective, error_file;
  std::string note;  // what else the launcher knows
};

/// What a rank leaves behind.
struct RankTraces {
  std::string error_file;
  Descriptor state;  // app/system/rank_state.h
};

/// Gathers what is known about an exit. A missing or unreadable error file is no error.
Failure describe_exit(const LaunchConfig& config, const Assignment& assignment, const WorkerExit& exit,
                      const RankTraces& traces);

/// What a failure is to others that are seen within a moment, the likeliest cause first: preempted (75: the job ends
/// whatever else has happened), killed from outside (SIGKILL), failed by itself, failed because another rank did (exit
/// code 69, or an error that speaks of its peer).
enum class Cause { kPreempted, kKilled, kOwn, kConsequence };
Cause cause_of(const Failure& failure);

/// Whether `a` is likelier to be the cause, of two deaths of which it is not known which was first: by cause_of, then
/// the earlier one by the error files, as torchrun has it, then a signal, then the lower rank. SIGABRT is a program's
/// own way to fail, as an exit code is.
bool likelier_cause(const Failure& a, const Failure& b);

/// "rank 1 (local rank 1, host h, pid 7) was killed by signal 9 (SIGKILL) in phase forward: ..."
std::string one_line(const Failure& failure);

/// Writes or completes the failed rank's error file: its own members stay, and rank, local_rank, host, pid, exit_code,
/// signal, time, phase and last_collective are added; where the rank wrote no message, one in ErrorHandler's form. What
/// cannot be read is renamed to error.json.unread first. Also copies it to this process' own TORCHELASTIC_ERROR_FILE, as
/// torchrun does. Failures to write are ignored: the job's end matters more.
void complete_error_file(const Failure& failure);

}  // namespace bert
