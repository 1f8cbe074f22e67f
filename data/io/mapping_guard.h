// Files that become shorter while they are mapped.
#pragma once

#include <cstddef>

namespace bert {

// Note [Cut mappings]
// A file that another process shortens keeps its mapping, but the bytes that it has lost are gone: reading one sends
// SIGBUS, which would kill the process. A guarded mapping then reads zeros there. So readers must check what they read:
// each row of a shard has a checksum, and a row of zeros fails it.

/// Guards the mapping of `bytes` bytes at `data` as long as the object lives. The first object of the process sets an
/// action for SIGBUS, which passes faults in other memory on to the action that was there before.
class MappingGuard {
 public:
  MappingGuard() = default;  // guards nothing
  MappingGuard(const void* data, size_t bytes);
  ~MappingGuard();
  MappingGuard(MappingGuard&& other) noexcept : place_(other.place_) { other.place_ = nullptr; }
  MappingGuard& operator=(MappingGuard&& other) noexcept;

  struct Place;

 private:
  Place* place_ = nullptr;
};

}  // namespace bert
