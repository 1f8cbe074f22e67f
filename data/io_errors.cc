#include "data/io_errors.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "data/error.h"

namespace bert {
namespace {

/// Bytes that may still be written beside `path`; none where the system does not say.
std::optional<uint64_t> free_bytes(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path().string();
  struct statvfs disk {};
  if (statvfs(directory.empty() ? "." : directory.c_str(), &disk) != 0) return std::nullopt;
  return uint64_t{disk.f_bavail} * disk.f_frsize;
}

}  // namespace

void throw_io_error(const std::string& path, const char* action, int error, size_t needed) {
  if (error == ENOSPC || error == EDQUOT) {
    const std::optional<uint64_t> free = free_bytes(path);
    throw IoError(
        fmt::format("{}: cannot {}: {}: {} bytes more are needed, {} are free. Free some space or write elsewhere.",
                    path, action, error == ENOSPC ? "the disk is full" : "the quota is used up", needed,
                    free ? std::to_string(*free) : "an unknown number"));
  }
  throw IoError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(error)));
}

void check_free_space(const std::string& path, int64_t bytes, const char* what) {
  const std::optional<uint64_t> free = free_bytes(path);
  if (!free || *free >= static_cast<uint64_t>(bytes)) return;
  throw IoError(fmt::format("{}: the disk is full: {} needs {} bytes, {} are free. Free some space or write elsewhere.",
                            path, what, bytes, *free));
}

}  // namespace bert
