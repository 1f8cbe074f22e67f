#include "app/train/run_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "data/io/error.h"
#include "data/io/files.h"
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
  make_directories(run_directory);
  file_ = Descriptor(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_) throw_io_error(path_, "open", errno);
  if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    const bool lacks_locks = errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP;
    if (lacks_locks) {
      throw IoError(
          fmt::format("{}: cannot lock: {}; its file system has no locks: mount it with them (Lustre: -o flock, "
                      "NFS: rpc.statd), or choose another run_directory",
                      path_, std::strerror(errno)));
    }
    if (errno != EWOULDBLOCK) throw_io_error(path_, "lock", errno);
    throw RunLocked(fmt::format("{}: in use by process {}. Wait for it, end it, or choose another run_directory.",
                                run_directory, holder_of(file_.get())));
  }
  const std::string pid = std::to_string(getpid()) + "\n";
  if (pwrite(file_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()) ||
      ftruncate(file_.get(), static_cast<off_t>(pid.size())) != 0)
    throw_io_error(path_, "write", errno, pid.size());
}

void RunLock::check() const {
  if (is_at(file_, path_)) return;
  throw IoError(
      path_ +
      ": is not the file that this process has locked: the run directory was removed or moved. Nothing more is "
      "written; start the run again, in a directory that stays");
}

}  // namespace bert
