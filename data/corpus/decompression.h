// Bytes of a file, unpacked if it is compressed, in bounded memory.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/descriptor.h"

namespace bert {

/// Bytes that are read once, from the beginning to the end.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// Puts at least one and at most `bytes` bytes into `out` and returns their number; 0 at the end.
  virtual size_t read(char* out, size_t bytes) = 0;
};

/// The bytes of a file, a pipe or a device as they are stored.
class StoredFile final : public ByteStream {
 public:
  /// Throws InputMissing, IoError.
  explicit StoredFile(std::string path);
  /// Throws IoError, and DataError at the end if the file has changed since it was opened.
  size_t read(char* out, size_t bytes) override;

  /// Goes to a byte of a regular file, which read() returns next. Throws IoError.
  void seek(int64_t offset);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// The first bytes of the file, as many as tell its format if there are as many.
  [[nodiscard]] std::string_view beginning() const { return {beginning_.data(), beginning_.size()}; }
  /// The place in the file of the byte that read() returns next.
  [[nodiscard]] int64_t offset() const { return offset_; }

 private:
  size_t read_more(char* out, size_t bytes);
  void check_unchanged() const;

  std::string path_;
  Descriptor file_;
  struct stat at_first_ {};
  std::string beginning_;
  int64_t offset_ = 0;
};

/// Memory that the decoder of a file may take. xz -9 takes 65 MB, zstd --ultra -22 takes 128 MB.
inline constexpr uint64_t kMostDecoderBytes = uint64_t{256} << 20;

/// The bytes of `file`, which must outlive the result: unpacked if it begins as gzip, bzip2, xz or zstd, with all
/// members, streams or frames in it; otherwise as they are. Reading throws DataError with file and offset for a file
/// that is damaged, ends too early or has other bytes after its end, and if unpacking takes more memory than
/// kMostDecoderBytes. Throws DataError at once for a zip archive, and for a file that is named *.gz, *.bz2, *.xz or *.zst
/// and is none.
std::unique_ptr<ByteStream> unpacked(StoredFile& file);

/// `name` without .gz, .bz2, .xz or .zst at its end.
std::string_view without_packed_suffix(std::string_view name);

}  // namespace bert
