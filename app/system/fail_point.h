// Fail points: places at which a test kills the program. BERT_FAIL_POINT is NAME, NAME:COUNT or NAME:COUNT@RANK.
#pragma once

#include <array>
#include <cstddef>

#include "app/system/phase.h"

namespace bert {

/// Fail points other than the phases of app/system/phase.h.
enum class FailPoint {
  kCheckpointWrite,
  kCheckpointFsync,
  kCheckpointManifest,
  kCheckpointRename,
  kCheckpointRenamed,
  kCheckpointLatest,
  kCheckpointPrune,
  kDataChunk,
  kDataRead,
  kDataExamples,
  kDataFile,
  kDataNamed,
  kDataRemoved,
  kTrainStep
};

/// Names in BERT_FAIL_POINT, in the order of FailPoint.
inline constexpr std::array<const char*, 14> kFailPointNames = {
    "checkpoint.write",  "checkpoint.fsync", "checkpoint.manifest", "checkpoint.rename", "checkpoint.renamed",
    "checkpoint.latest", "checkpoint.prune", "data.chunk",          "data.read",         "data.examples",
    "data.file",         "data.named",       "data.removed",        "train.step"};
static_assert(kFailPointNames.size() == static_cast<size_t>(FailPoint::kTrainStep) + 1);

/// Kills the process (SIGKILL) at the COUNT-th visit (default: the first) of the point that BERT_FAIL_POINT names. With
/// @RANK only the process whose environment variable RANK has that value is killed.
void fail_point(FailPoint point);
/// The fail point at the begin of a phase. set_phase() calls it.
void fail_point(Phase phase);

/// Throws UsageError if BERT_FAIL_POINT is set to a value that no fail point matches: a test with a wrong name would
/// pass without a kill.
void check_fail_point();

}  // namespace bert
