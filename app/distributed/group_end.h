// The end of a process group, orderly or after a failure.
#pragma once

#include <chrono>
#include <functional>

#include "app/distributed/process_group.h"

namespace bert {

/// Note [End of a group]
/// The destructor of a NCCL group aborts communicators and waits, as long as the GPU does not let go of a collective
/// that other ranks never joined. So a rank that fails writes its error file (app/system/error_report.h) before its
/// objects are destroyed, and ends within a limited time whatever its destructors do. The orderly end waits until every
/// collective is done on the GPU, and then frees the communicators (LibTorch's shutdown()).
///
/// Calls `command`, which sets `group` as soon as it has one (nullptr: a single process), and returns its result after
/// the orderly end of the group. If it throws, writes the error file, aborts the group and rethrows; with a group, the
/// process ends with the exit code of the exception after `longest` at the latest. `group` must outlive the call, and
/// with it what uses the group: an exception must find the group alive.
int with_orderly_end(const ProcessGroupPtr& group, const std::function<int()>& command,
                     std::chrono::milliseconds longest = std::chrono::seconds(10));

}  // namespace bert
