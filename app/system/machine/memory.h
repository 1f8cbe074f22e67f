// The memory that this machine offers to a process.
#pragma once

#include <cstdint>
#include <string>

namespace bert {

/// Bytes that a program can still take: the kernel's MemAvailable, capped by what the cgroup limits (versions 1 and 2)
/// leave, from this process' cgroup up to the root of its hierarchy. A limit leaves what is not in use; file cache that
/// the kernel would drop is not in use. INT64_MAX if the kernel does not tell. `root` contains /proc and /sys; tests pass
/// a directory of their own.
int64_t available_memory(const std::string& root = "/");

}  // namespace bert
