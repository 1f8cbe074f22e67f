#include "data/io/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "data/io/io_errors.h"

namespace bert {

ScratchFile::ScratchFile(const std::string& directory)
    : directory_(directory), file_(open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {
  if (file_) return;
  std::string name = directory + "/scratch-XXXXXX";  // the file system has no files without names
  file_ = Descriptor(mkostemp(name.data(), O_CLOEXEC));
  if (!file_) throw_io_error(directory, "create a file in", errno);
  unlink(name.c_str());
}

void ScratchFile::append(const void* data, size_t bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = pwrite(file_.get(), from, bytes, size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_io_error(directory_, "write a file in", written < 0 ? errno : EIO, bytes);
    from += written;
    size_ += written;
    bytes -= static_cast<size_t>(written);
  }
}

size_t ScratchFile::read(int64_t offset, void* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(file_.get(), static_cast<char*>(to) + done, bytes - done, offset + static_cast<int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_io_error(directory_, "read a file in", errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

}  // namespace bert
