#include "data/io/io_errors.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "data/io/error.h"

namespace bert {
namespace {

/// The space that is left on the disk of `path`.
FreeSpace free_space(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  struct statvfs disk {};
  if (statvfs(directory.empty() ? "." : directory.c_str(), &disk) != 0) return {};
  FreeSpace free;
  free.bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (disk.f_files > 0) free.files = disk.f_favail;  // some file systems, such as btrfs, have no such number
  return free;
}

bool is_absent(const std::string& path) {
  std::error_code error;
  return std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found;
}

}  // namespace

std::string no_room(int error, const FreeSpace& free, uint64_t needed) {
  const std::string bytes = free.bytes ? std::to_string(*free.bytes) : "an unknown number";
  if (error == ENOSPC && free.files == 0 && (!free.bytes || *free.bytes > needed)) {
    return fmt::format(
        "the disk has no inode free: it holds as many files as it can, though {} bytes are free. Remove some files or "
        "write elsewhere.",
        bytes);
  }
  return fmt::format("{}: {} bytes more are needed, {} are free. Free some space or write elsewhere.",
                     error == ENOSPC ? "the disk is full" : "the quota is used up", needed, bytes);
}

void throw_io_error(const std::string& path, const char* action, int error, size_t needed) {
  if (error == ENOSPC || error == EDQUOT) {
    throw IoError(fmt::format("{}: cannot {}: {}", path, action, no_room(error, free_space(path), needed)));
  }
  if (error == ENOMEM || error == EAGAIN)
    throw ResourceError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(error)));
  const std::string directory = std::filesystem::path(path).parent_path().string();
  if (error == ENOENT && action == std::string_view("create") && !directory.empty() && is_absent(directory)) {
    throw IoError(fmt::format("{}: cannot create: the directory {} does not exist; create it", path, directory));
  }
  throw IoError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(error)));
}

void check_free_space(const std::string& path, int64_t bytes, const char* what) {
  const FreeSpace free = free_space(path);
  if (free.bytes && *free.bytes < static_cast<uint64_t>(bytes)) {
    throw IoError(
        fmt::format("{}: the disk is full: {} needs {} bytes, {} are free. Free some space or write elsewhere.", path,
                    what, bytes, *free.bytes));
  }
  if (free.files == 0) throw IoError(fmt::format("{}: {}", path, no_room(ENOSPC, free, 0)));
}

}  // namespace bert
