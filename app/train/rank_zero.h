// Work that rank 0 does for all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/distributed/process_group.h"

namespace bert {

/// Calls `work` in rank 0 alone and returns its text on every rank. `name` is that of an Announcement. If `work` throws
/// ConfigError, DataError, InputMissing or IoError, every rank throws it, with the same message. Throws PeerError like
/// announced().
std::string on_rank_zero(const ProcessGroupPtr& group, const std::string& name, int64_t timeout_seconds,
                         const std::function<std::string()>& work);

}  // namespace bert
