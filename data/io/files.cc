#include "data/io/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>
#include <system_error>

#include "data/io/error.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

std::string directory_of(const std::string& path) {
  const auto parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

constexpr int64_t kMostFromDevices = int64_t{1} << 30;  // bytes of a pipe or device, which may have no end

/// With O_NONBLOCK in `flags`, opening a pipe does not wait for a writer.
Descriptor open_to_read(const std::string& path, int flags = 0) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (file) return file;
  if (errno == ENOENT || errno == ENOTDIR) {
    throw InputMissing(path + ": no such file" +
                       (path == "-" ? "; standard input is not read here: write it to a file, and name that" : ""));
  }
  throw_io_error(path, "open", errno);
}

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "directory";
  if (S_ISCHR(mode)) return "character device";
  if (S_ISBLK(mode)) return "block device";
  if (S_ISFIFO(mode)) return "pipe";
  if (S_ISSOCK(mode)) return "socket";
  return "special file";
}

/// Writes all bytes. `offset` is the position in the file.
void write_fully(int descriptor, const std::string& path, int64_t offset, const char* data, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = pwrite(descriptor, data, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_io_error(path, "write", written < 0 ? errno : EIO, bytes);
    data += written;
    offset += written;
    bytes -= static_cast<size_t>(written);
  }
}

/// A path to a file that has no name.
std::string name_of(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

/// Opens a file without a name in `directory`; it disappears with the process. Returns no file where the file system
/// has no unnamed files, or where nothing could give the file a name later.
Descriptor open_unnamed(const std::string& directory) {
  Descriptor file(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666));
  if (file && access(name_of(file.get()).c_str(), F_OK) != 0) file.reset();
  return file;
}

/// The first part of the names of `target`'s temporary files, without the directory: the name of `target`, or its
/// checksum where the name leaves no room for the rest.
std::string temporary_prefix(const std::string& target) {
  constexpr size_t kLongestRest = 26;  // ".tmp-", two numbers of at most ten digits, a hyphen
  const std::string name = std::filesystem::path(target).filename().string();
  const int64_t longest = pathconf(directory_of(target).c_str(), _PC_NAME_MAX);
  const bool fits = name.size() + kLongestRest <= static_cast<size_t>(longest > 0 ? longest : NAME_MAX);
  return (fits ? name : checksum(name.data(), name.size())) + ".tmp-";
}

/// A name that this process has not used for another file. An earlier process with the same number may have used it.
std::string new_temporary(const std::string& target) {
  static std::atomic<int> count{0};
  const std::string name = fmt::format("{}{}-{}", temporary_prefix(target), getpid(), ++count);
  return (std::filesystem::path(target).parent_path() / name).string();
}

/// Removes temporary files of `target` whose process has ended: no process here has its number, and no machine holds
/// the lock.
void remove_stale(const std::string& target) {
  const std::string prefix = temporary_prefix(target);
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(directory_of(target), absent)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    pid_t pid = 0;
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, pid);
    if (error != std::errc() || stop == end || *stop != '-' || pid <= 0) continue;
    if (kill(pid, 0) == 0 || errno != ESRCH) continue;
    // Opened for writing, because a lock on NFS needs that. O_NONBLOCK: a pipe of that name must not block.
    const Descriptor file(open(entry.path().c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    if (file && flock(file.get(), LOCK_EX | LOCK_NB) == 0) unlink(entry.path().c_str());
  }
}

}  // namespace

std::string writable_target(const std::string& path) {
  struct stat status {};
  const bool exists = stat(path.c_str(), &status) == 0;
  if (!exists && errno != ENOENT) throw_io_error(path, "create", errno);
  if (exists && !S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: cannot write: it is a {}, and what is written whole has to be a regular file. {}",
                              path, kind_of(status.st_mode),
                              S_ISDIR(status.st_mode) ? "Name a file in it." : "Name a file, and print that."));
  }
  std::filesystem::path target = path;
  constexpr int kMostLinks = 40;  // the kernel's limit
  for (int links = 0; std::filesystem::is_symlink(target); ++links) {
    if (links == kMostLinks) throw_io_error(path, "create", ELOOP);
    target = target.parent_path() / std::filesystem::read_symlink(target);
  }
  return target.string();
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), target_(writable_target(path_)), temporary_(new_temporary(target_)) {
  struct stat status {};  // a path that is too long is reported before the work, not by commit()
  if (lstat(temporary_.c_str(), &status) != 0 && errno != ENOENT) throw_io_error(path_, "create", errno);
  remove_stale(target_);
  descriptor_ = open_unnamed(directory_of(target_));
  named_ = !descriptor_;
  while (!descriptor_) {
    descriptor_ = Descriptor(open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor_) break;
    if (errno != EEXIST) throw_io_error(path_, "create", errno);
    temporary_ = new_temporary(target_);
  }
  flock(descriptor_.get(), LOCK_EX | LOCK_NB);  // tells remove_stale() on other machines that the file is in use
}

AtomicFile::~AtomicFile() {
  if (named_) unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  write_fully(descriptor_.get(), path_, size_, static_cast<const char*>(data), bytes);
  size_ += static_cast<int64_t>(bytes);
}

void AtomicFile::write_at(int64_t offset, const void* data, size_t bytes) {
  if (offset < 0 || offset + static_cast<int64_t>(bytes) > size_) {
    throw IoError(fmt::format("{}: cannot overwrite bytes {} to {}: only {} are written", path_, offset,
                              offset + static_cast<int64_t>(bytes), size_));
  }
  write_fully(descriptor_.get(), path_, offset, static_cast<const char*>(data), bytes);
}

const std::string& AtomicFile::temporary_name() {
  if (!named_) {
    const std::string unnamed = name_of(descriptor_.get());
    while (linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, temporary_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      if (errno != EEXIST) throw_io_error(path_, "name", errno);
      temporary_ = new_temporary(target_);
    }
    named_ = true;
  }
  return temporary_;
}

void AtomicFile::commit() {
  if (fsync(descriptor_.get()) != 0) throw_io_error(path_, "sync", errno);
  temporary_name();
  // Renamed before it is closed: the lock keeps others from removing the file as a dead process's.
  if (rename(temporary_.c_str(), target_.c_str()) != 0) throw_io_error(path_, "rename", errno);
  named_ = false;
  if (close(descriptor_.release()) != 0) throw_io_error(path_, "close", errno);
  sync_path(directory_of(target_));
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AppendedFile::AppendedFile(const std::string& path)
    : path_(path), descriptor_(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)) {
  if (!descriptor_) throw_io_error(path, "open", errno);
}

void AppendedFile::write(std::string_view text) {
  struct stat status {};
  if (fstat(descriptor_.get(), &status) != 0) throw_io_error(path_, "write", errno);
  try {
    write_fully(descriptor_.get(), path_, status.st_size, text.data(), text.size());
  } catch (const IoError&) {
    static_cast<void>(ftruncate(descriptor_.get(), status.st_size) == 0);  // best effort
    throw;
  }
}

std::string read_file(const std::string& path, int64_t limit) {
  const Descriptor file = open_to_read(path);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_io_error(path, "read", errno);
  if (!S_ISREG(status.st_mode)) limit = std::min(limit, kMostFromDevices);
  const auto check_limit = [&](int64_t size) {
    if (size > limit) {
      throw DataError(
          fmt::format("{}: the file is too large: {} bytes or more, at most {} are allowed", path, size, limit));
    }
  };
  check_limit(status.st_size);
  std::string content;
  size_t used = 0;
  // One byte more than the reported size, so that the end is seen without growing. Pipes report 0, and grow.
  content.resize(static_cast<size_t>(status.st_size) + 1);
  while (true) {
    if (used == content.size()) content.resize(std::max<size_t>(2 * used, 1 << 16));
    const ssize_t got = read(file.get(), content.data() + used, content.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error(path, "read", errno);
    if (got == 0) break;
    used += static_cast<size_t>(got);
    check_limit(static_cast<int64_t>(used));
  }
  content.resize(used);
  return content;
}

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file = open_to_read(path, O_NONBLOCK);
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw_io_error(path, "map", errno);
  if (!S_ISREG(status.st_mode)) {
    throw IoError(fmt::format("{}: cannot map: it is a {}, not a regular file. {}", path, kind_of(status.st_mode),
                              S_ISDIR(status.st_mode) ? "Name the files in it, for example " + path + "/*.txt."
                                                      : "Write what it gives to a file, and name that."));
  }
  size_ = status.st_size;
  data_ = "";
  if (size_ == 0) return;  // mmap refuses an empty range
  void* mapping = mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, file.get(), 0);
  if (mapping == MAP_FAILED) throw_io_error(path, "map", errno);
  data_ = static_cast<const char*>(mapping);
  guard_ = MappingGuard(path, status, mapping);
}

MappedFile::~MappedFile() {
  guard_ = MappingGuard();
  if (size_ > 0) munmap(const_cast<char*>(data_), static_cast<size_t>(size_));
}

void sync_path(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) throw_io_error(path, "sync", errno);
  // Some file systems cannot sync a directory and return EINVAL. That is not an error here.
  if (fsync(file.get()) != 0 && errno != EINVAL) throw_io_error(path, "sync", errno);
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw_io_error(path, "create", error.value());
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error) throw_io_error(path, "read", error.value());
  std::ranges::sort(names);
  return names;
}

bool is_at(const Descriptor& file, const std::string& path) {
  struct stat opened {
  }, there{};
  return fstat(file.get(), &opened) == 0 && stat(path.c_str(), &there) == 0 && opened.st_dev == there.st_dev &&
         opened.st_ino == there.st_ino;
}

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_);
}

Checksum::~Checksum() { XXH3_freeState(state_); }

void Checksum::update(const void* data, size_t bytes) { XXH3_128bits_update(state_, data, bytes); }

std::string Checksum::hexadecimal() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::string checksum(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace bert
