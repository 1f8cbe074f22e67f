#include "data/corpus/input_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

using Identity = std::pair<dev_t, ino_t>;

struct stat status_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) return status;
  if (errno != ENOENT && errno != ENOTDIR) throw_io_error(path, "open", errno);
  if (fs::is_symlink(fs::symlink_status(path)))
    throw InputMissing(path + ": is a symbolic link to something that is not there");
  throw InputMissing(path + ": no such file" +
                     (path == "-" ? "; standard input is not read here: name /dev/stdin, or a file" : ""));
}

class Search {
 public:
  void add(const std::string& path) {
    const struct stat status = status_of(path);
    if (!S_ISDIR(status.st_mode)) {
      add_file(path, status);
      return;
    }
    const size_t before = found_.files.size();
    add_directory(path, status);
    if (found_.files.size() == before) throw InputMissing(path + ": no file is in this directory, or all are hidden");
  }

  InputFiles take() { return std::move(found_); }

 private:
  void add_file(const std::string& path, const struct stat& status) {
    if (access(path.c_str(), R_OK) != 0) throw_io_error(path, "open", errno);
    const bool regular = S_ISREG(status.st_mode);
    found_.files.push_back({.path = path,
                            .bytes = regular ? int64_t{status.st_size} : 0,
                            .regular = regular,
                            .modified_ns = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec});
  }

  void add_directory(const std::string& path, const struct stat& status) {
    const Identity identity{status.st_dev, status.st_ino};
    if (std::ranges::find(open_, identity) != open_.end()) return;  // a link to a directory above it
    open_.push_back(identity);
    for (const std::string& name : names_in(path)) {
      const std::string inner = (fs::path(path) / name).string();
      if (name == kUnfinishedExtraction)
        throw DataError(path + ": the extraction of this text was not finished; run bert data extract again");
      if (name.starts_with('.')) {
        ++found_.skipped;
        continue;
      }
      const struct stat found = status_of(inner);
      if (S_ISDIR(found.st_mode)) {
        add_directory(inner, found);
      } else if (S_ISREG(found.st_mode)) {
        add_file(inner, found);
      } else {
        ++found_.skipped;
      }
    }
    open_.pop_back();
  }

  InputFiles found_;
  std::vector<Identity> open_;  // the directories from the named one to the current one
};

}  // namespace

InputFiles find_input_files(const std::vector<std::string>& paths) {
  Search search;
  for (const std::string& path : paths) search.add(path);
  return search.take();
}

std::string identity_of(const std::vector<InputFile>& files) {
  Checksum checksum;
  int64_t bytes = 0;
  for (const InputFile& file : files) {
    if (!file.regular) return "";
    bytes += file.bytes;
    const std::string line = fmt::format("{} {} {}\n", file.bytes, file.modified_ns, file.path);
    checksum.update(line.data(), line.size());
  }
  constexpr size_t kDigits = 16;
  return fmt::format("{} files, {} bytes, {}", files.size(), bytes, checksum.hexadecimal().substr(0, kDigits));
}

}  // namespace bert
