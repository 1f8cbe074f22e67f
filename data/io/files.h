// Files that are complete or absent: written without a name or under a temporary one, synced, then renamed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/descriptor.h"
#include "data/io/mapping_guard.h"

struct XXH3_state_s;

namespace bert {

/// The file that a write to `path` creates or replaces: `path` with its symbolic links followed, even if the last one
/// points to nothing yet. Throws IoError if something other than a regular file is there: a rename would replace a
/// device or a pipe by a file.
std::string writable_target(const std::string& path);

/// Writes a file that commit() puts at writable_target(path). Until then the file has no name, or a temporary name
/// beside the target where the file system has no unnamed files. Without commit() the file is removed, and an earlier
/// file at `path` is unchanged. The next write of the same target removes temporary files of killed processes. Every
/// failure throws IoError with the path and the failed action, on a full disk also with the bytes needed and free.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Overwrites bytes already written (a header patched at the end).
  void write_at(int64_t offset, const void* data, size_t bytes);
  /// The bytes that write() has written.
  [[nodiscard]] int64_t size() const { return size_; }
  /// Gives the file its temporary name, if it has none, and returns that: a library may open the file by it, and write
  /// the content in place of write().
  const std::string& temporary_name();
  /// fsync, rename, close, fsync of the directory.
  void commit();

 private:
  std::string path_, target_, temporary_;
  Descriptor descriptor_;
  bool named_ = false;  // temporary_ exists
  int64_t size_ = 0;
};

/// Writes `content` as the whole of `path`, by an AtomicFile.
void write_file(const std::string& path, std::string_view content);

/// A file to which whole pieces are appended, such as a log. Failures throw IoError as those of AtomicFile do.
class AppendedFile {
 public:
  explicit AppendedFile(const std::string& path);

  /// Appends `text`. If it throws, no part of `text` stays in the file.
  void write(std::string_view text);

 private:
  std::string path_;
  Descriptor descriptor_;
};

/// Reads a whole file. Throws InputMissing, IoError, or DataError if the file is larger than `limit` bytes.
std::string read_file(const std::string& path, int64_t limit = int64_t{1} << 40);

/// A read-only mapping of a file. Throws InputMissing, IoError. Bytes that the file loses while it is mapped read as
/// zeros, and expect_whole() throws then: Note [Cut mappings] in data/io/mapping_guard.h.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  [[nodiscard]] const char* data() const { return data_; }
  [[nodiscard]] int64_t size() const { return size_; }
  [[nodiscard]] std::string_view view() const { return {data_, static_cast<size_t>(size_)}; }
  /// Throws DataError if the file has become shorter since.
  void expect_whole() const { guard_.expect_whole(); }

 private:
  const char* data_ = nullptr;
  int64_t size_ = 0;
  MappingGuard guard_;
};

/// fsync of a file or directory by name. Throws IoError.
void sync_path(const std::string& path);

/// Creates the directory `path` and those above it. Throws IoError.
void make_directories(const std::string& path);

/// The names in a directory, sorted by their bytes. Throws IoError.
std::vector<std::string> names_in(const std::string& path);

/// True if `path` leads to the opened file.
bool is_at(const Descriptor& file, const std::string& path);

/// XXH3-128 as 32 lowercase hexadecimal digits.
std::string checksum(const void* data, size_t bytes);

/// The same checksum for bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void update(const void* data, size_t bytes);
  [[nodiscard]] std::string hexadecimal() const;

 private:
  XXH3_state_s* state_;
};

}  // namespace bert
