// Files that become shorter while they are mapped.
#pragma once

#include <sys/stat.h>

#include <string>

namespace bert {

// Note [Cut mappings]
// A file that another process shortens keeps its mapping, but the bytes that it has lost are gone: reading one sends
// SIGBUS, which would kill the process. A guarded mapping then reads zeros there. So readers must check what they read.
// Each row of a shard has a checksum, and a row of zeros fails it. Readers without checksums, and those that checked
// them earlier, call expect_whole() when they have read: after the last use, because the file can become shorter at any
// time.

/// Guards the mapping at `data` of the file `path`, whose status when it was opened is `file`, as long as the object
/// lives. The first object of the process sets an action for SIGBUS, which passes faults in other memory on to the
/// action that was there before.
class MappingGuard {
 public:
  MappingGuard() = default;  // guards nothing
  MappingGuard(std::string path, const struct stat& file, const void* data);
  ~MappingGuard();
  MappingGuard(MappingGuard&& other) noexcept : place_(other.place_) { other.place_ = nullptr; }
  MappingGuard& operator=(MappingGuard&& other) noexcept;

  /// Throws DataError with the file and the place if the file has become shorter: a byte that it lost was read, or
  /// `path` is the same file and has fewer bytes now.
  void expect_whole() const;

  struct Place;

 private:
  Place* place_ = nullptr;
};

/// expect_whole() of the guarded mapping that `address` lies in; nothing if it lies in none. Others may hold its guard.
void expect_whole_mapping(const void* address);

}  // namespace bert
