#include "app/report/view/file_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "data/io/descriptor.h"
#include "data/io/io_errors.h"

namespace bert {

std::vector<std::string> FileTail::read(bool& anew) {
  anew = false;
  const Descriptor file(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return {};
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) throw_io_error(path_, "read", errno);
  anew = inode_ != 0 && (inode_ != status.st_ino || status.st_size < offset_);
  if (anew) offset_ = 0;
  inode_ = status.st_ino;
  std::string text;
  char buffer[1 << 16];
  for (ssize_t got = 0;; text.append(buffer, static_cast<size_t>(got))) {
    got = pread(file.get(), buffer, sizeof buffer, offset_ + static_cast<off_t>(text.size()));
    if (got < 0 && errno != EINTR) throw_io_error(path_, "read", errno);
    if (got == 0) break;
    got = got < 0 ? 0 : got;
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    lines.push_back(text.substr(begin, end - begin));
  offset_ += static_cast<int64_t>(begin);
  return lines;
}

}  // namespace bert
