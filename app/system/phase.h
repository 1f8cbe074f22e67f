// The phases of a training process: one list for error reports, launchers and fail points.
#pragma once

#include <array>
#include <cstddef>

namespace bert {

enum class Phase {
  kStarting,
  kJoining,
  kReadingData,
  kForward,
  kBackward,
  kReduction,
  kUpdate,
  kEvaluation,
  kCheckpoint
};

/// Names in messages, error files and BERT_FAIL_POINT, in the order of Phase.
inline constexpr std::array<const char*, 9> kPhaseNames = {"starting", "joining",    "reading data",
                                                           "forward",  "backward",   "reduction of gradients",
                                                           "update",   "evaluation", "checkpoint"};
static_assert(kPhaseNames.size() == static_cast<size_t>(Phase::kCheckpoint) + 1);

constexpr const char* name_of(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

}  // namespace bert
