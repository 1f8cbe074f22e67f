#include "data/io/atomic_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <system_error>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

void remove_tree(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError(fmt::format("{}: cannot remove: {}", path.string(), error.message()));
}

/// Locks a directory. Returns no descriptor if another process has the lock, or where directories have no locks.
Descriptor lock(const std::string& path) {
  Descriptor directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (directory && flock(directory.get(), LOCK_EX | LOCK_NB) != 0) directory.reset();
  return directory;
}

/// Removes the directories with this prefix whose process has ended: no process here has its number, and no machine holds
/// the lock.
void remove_stale(const fs::path& parent, const std::string& prefix) {
  std::error_code unseen;
  for (const auto& entry : fs::directory_iterator(parent, unseen)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    pid_t pid = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, pid);
    if (error != std::errc() || stop != end || pid <= 0) continue;
    if (pid != getpid() && (kill(pid, 0) == 0 || errno != ESRCH)) continue;
    const Descriptor held = lock(entry.path().string());
    if (held) remove_tree(entry.path());
  }
}

}  // namespace

AtomicDirectory::AtomicDirectory(std::string directory) : directory_(std::move(directory)) {
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  const fs::path path = fs::absolute(directory_), parent = path.parent_path();
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) throw IoError(fmt::format("{}: cannot create: {}", parent.string(), error.message()));
  const std::string prefix = fmt::format("{}{}-", kTemporaryDirectoryPrefix, path.filename().string());
  remove_stale(parent, prefix);
  temporary_ = (parent / fmt::format("{}{}", prefix, getpid())).string();
  if (mkdir(temporary_.c_str(), 0777) != 0) throw_io_error(temporary_, "create", errno);
  lock_ = lock(temporary_);
}

AtomicDirectory::~AtomicDirectory() {
  if (temporary_.empty()) return;
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);
}

/// Exchanges the names by way of a third. If the process ends in between, the place is empty, and both are beside it.
void AtomicDirectory::exchange_in_two_steps() {
  const std::string old = temporary_ + "-old";
  const auto move = [](const std::string& from, const std::string& to) {
    if (rename(from.c_str(), to.c_str()) != 0) throw_io_error(from, ("rename to " + to).c_str(), errno);
  };
  move(directory_, old);
  try {
    move(temporary_, directory_);
  } catch (const IoError&) {
    move(old, directory_);
    throw;
  }
  move(old, temporary_);
}

void AtomicDirectory::publish() {
  sync_path(temporary_);
  if (rename(temporary_.c_str(), directory_.c_str()) != 0) {
    if (errno != ENOTEMPTY && errno != EEXIST) throw_io_error(temporary_, ("rename to " + directory_).c_str(), errno);
    // A directory is there already. The two exchange their names atomically; then the old one is removed under the
    // temporary name.
    if (renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, directory_.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS)
        throw_io_error(temporary_, ("exchange with " + directory_).c_str(), errno);
      exchange_in_two_steps();  // NFS, Lustre and 9p
    }
    remove_tree(temporary_);
  }
  temporary_.clear();
  sync_path(fs::absolute(directory_).parent_path().string());
}

}  // namespace bert
