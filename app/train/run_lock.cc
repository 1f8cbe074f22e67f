#include "app/train/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "data/io/error.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

std::string holder_of(int descriptor) {
  char text[64] = {};
  const ssize_t got = pread(descriptor, text, sizeof text - 1, 0);
  std::string pid(text, got > 0 ? static_cast<size_t>(got) : 0);
  pid.erase(pid.find_last_not_of('\n') + 1);
  return pid.empty() || pid.find_first_not_of("0123456789") != std::string::npos ? "unknown" : pid;
}

}  // namespace

RunLock::RunLock(const std::string& run_directory) : path_(run_directory + "/lock") {
  std::error_code error;
  std::filesystem::create_directories(run_directory, error);
  if (error) throw_io_error(run_directory, "create the run directory", error.value());
  const std::string& path = path_;
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_io_error(path, "open", errno);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int reason = errno;
    const std::string holder = holder_of(descriptor_);
    close(descriptor_);
    if (reason != EWOULDBLOCK) throw_io_error(path, "lock", reason);
    throw RunLocked(fmt::format("{}: in use by process {}. Wait for it, end it, or choose another run_directory.",
                                run_directory, holder));
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (pwrite(descriptor_, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()) ||
      ftruncate(descriptor_, static_cast<off_t>(pid.size())) != 0) {
    const int reason = errno;
    close(descriptor_);
    throw_io_error(path, "write", reason, pid.size());
  }
}

RunLock::~RunLock() { close(descriptor_); }

void RunLock::check() const {
  struct stat held {
  }, named{};
  if (fstat(descriptor_, &held) == 0 && stat(path_.c_str(), &named) == 0 && held.st_dev == named.st_dev &&
      held.st_ino == named.st_ino)
    return;
  throw IoError(
      path_ +
      ": is not the file that this process has locked: the run directory was removed or moved. Nothing more is "
      "written; start the run again, in a directory that stays");
}

}  // namespace bert
