// Files that are read from the beginning to the end, and gzip.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/io/files.h"

namespace bert {

/// Reads a file in order. A gzip file (RFC 1952), which its first two bytes tell, is unpacked, with all of its members.
class SequentialFile {
 public:
  /// Throws InputMissing, IoError.
  explicit SequentialFile(const std::string& path);
  ~SequentialFile();
  SequentialFile(const SequentialFile&) = delete;
  SequentialFile& operator=(const SequentialFile&) = delete;

  /// Reads the next `bytes` bytes, fewer at the end of the content alone. Returns their number. Throws IoError, and
  /// DataError for gzip that is damaged or cut off.
  size_t read(void* data, size_t bytes);
  /// The bytes of content that were read.
  [[nodiscard]] int64_t position() const;
  /// True if the file is gzip.
  [[nodiscard]] bool packed() const;
  /// The share of the file that was read, 0 to 1.
  [[nodiscard]] double share() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// An AtomicFile, packed with gzip if asked for. The same content gives the same bytes at any time.
class SequentialOutput {
 public:
  SequentialOutput(const std::string& path, bool pack);
  ~SequentialOutput();
  SequentialOutput(const SequentialOutput&) = delete;
  SequentialOutput& operator=(const SequentialOutput&) = delete;

  /// Throws IoError.
  void write(std::string_view bytes);
  /// Completes the file. No call may follow. Throws IoError.
  void commit();

 private:
  struct Packer;
  AtomicFile file_;
  std::unique_ptr<Packer> packer_;  // null: plain
};

}  // namespace bert
