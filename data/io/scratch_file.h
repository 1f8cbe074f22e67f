// Bytes on disk that go with the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

/// A file without a name: appended to, and read at any place.
class ScratchFile {
 public:
  /// Throws IoError.
  explicit ScratchFile(const std::string& directory);

  /// Throws IoError, on a full disk with the bytes needed and free.
  void append(const void* data, size_t bytes);
  /// Reads up to `bytes` bytes from `offset`, fewer at the end of the file. Returns their number. Throws IoError.
  size_t read(int64_t offset, void* to, size_t bytes) const;

 private:
  std::string directory_;
  Descriptor file_;
  int64_t size_ = 0;
};

}  // namespace bert
