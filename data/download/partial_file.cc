#include "data/download/partial_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr int64_t kLargestSource = 1 << 16;  // bytes; a longer file beside a part is not ours

}  // namespace

PartialFile::PartialFile(const std::string& target, PublishedDigest published)
    : target_(writable_target(target)),
      path_(target_ + ".part"),
      source_path_(path_ + ".source"),
      published_(std::move(published)),
      descriptor_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666)) {
  if (!descriptor_) throw_io_error(path_, "create", errno);
  const bool alone = flock(descriptor_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
  // Another process may have given the part its final name since it was opened here.
  if (!alone || !is_at(descriptor_, path_))
    throw IoError(path_ + ": another process is downloading this file; wait for it, or end it");
  if (!published_.algorithm.empty()) digest_.emplace(published_.algorithm);
  read_source();
  if (source_.url.empty()) {
    restart({});
    return;
  }
  std::vector<char> piece(size_t{1} << 20);
  for (ssize_t got; (got = pread(descriptor_.get(), piece.data(), piece.size(), size_)) != 0;) {
    if (got < 0 && errno != EINTR) throw_io_error(path_, "read", errno);
    if (got <= 0) continue;
    if (digest_) digest_->update(piece.data(), static_cast<size_t>(got));
    size_ += got;
  }
}

void PartialFile::read_source() {
  if (!std::filesystem::is_regular_file(source_path_)) return;
  std::istringstream lines(read_file(source_path_, kLargestSource));
  std::map<std::string, std::string> values;
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) values[line.substr(0, space)] = line.substr(space + 1);
  }
  if (values[published_.algorithm] != published_.hexadecimal) return;
  const auto bytes = number_of<int64_t>(values["bytes"]);
  source_ = {.url = values["url"],
             .etag = values["etag"],
             .last_modified = values["last-modified"],
             .bytes = bytes.value_or(-1) < 0 ? std::nullopt : bytes};
}

void PartialFile::write_source() const {
  AtomicFile file(source_path_);
  file.write(fmt::format("url {}\n", source_.url));
  if (!source_.etag.empty()) file.write(fmt::format("etag {}\n", source_.etag));
  if (!source_.last_modified.empty()) file.write(fmt::format("last-modified {}\n", source_.last_modified));
  if (source_.bytes) file.write(fmt::format("bytes {}\n", *source_.bytes));
  if (digest_) file.write(fmt::format("{} {}\n", published_.algorithm, published_.hexadecimal));
  file.commit();
}

void PartialFile::restart(const PartSource& source) {
  if (ftruncate(descriptor_.get(), 0) != 0) throw_io_error(path_, "shorten", errno);
  size_ = 0;
  if (digest_) digest_.emplace(published_.algorithm);
  source_ = source;
  // The part is empty now, so a kill here leaves no bytes that the file beside it does not describe.
  if (!source_.url.empty()) write_source();
}

void PartialFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_.get(), bytes.data(), bytes.size(), size_);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw_io_error(path_, "write", written < 0 ? errno : EIO, bytes.size());
    const auto count = static_cast<size_t>(written);
    if (digest_) digest_->update(bytes.data(), count);
    size_ += written;
    bytes.remove_prefix(count);
  }
}

void PartialFile::commit() {
  if (fsync(descriptor_.get()) != 0) throw_io_error(path_, "sync", errno);
  if (rename(path_.c_str(), target_.c_str()) != 0) throw_io_error(path_, "rename", errno);
  unlink(source_path_.c_str());
  const std::string directory = std::filesystem::path(target_).parent_path().string();
  sync_path(directory.empty() ? "." : directory);
}

void PartialFile::discard() {
  restart({});
  unlink(source_path_.c_str());
  unlink(path_.c_str());
}

}  // namespace bert
