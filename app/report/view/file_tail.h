// The lines that another process appends to a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bert {

/// Reads a file that grows, also over a network file system. It opens the file at every call and keeps no lock.
class FileTail {
 public:
  explicit FileTail(std::string path) : path_(std::move(path)) {}

  /// The whole lines that were appended since the last call, without line ends. If the file was replaced by another, or
  /// became shorter, sets `anew` and returns all lines of the new one. An absent file has no lines. Throws IoError.
  std::vector<std::string> read(bool& anew);

 private:
  std::string path_;
  uint64_t inode_ = 0;
  int64_t offset_ = 0;  // bytes of whole lines that were returned
};

}  // namespace bert
