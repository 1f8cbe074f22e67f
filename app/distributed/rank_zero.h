// Work that one rank does for all ranks: mostly rank 0.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "app/distributed/process_group.h"

namespace bert {

/// Calls `work` in the rank of the announcement alone and returns its text on every rank. If `work` throws ConfigError,
/// DataError, InputMissing or IoError, every rank throws it, with the same message. Throws PeerError like announced().
std::string on_rank(const ProcessGroupPtr& group, const Announcement& announcement,
                    const std::function<std::string()>& work);

/// on_rank() of rank 0. `name` is that of an Announcement.
std::string on_rank_zero(const ProcessGroupPtr& group, const std::string& name, int64_t timeout_seconds,
                         const std::function<std::string()>& work);

}  // namespace bert
