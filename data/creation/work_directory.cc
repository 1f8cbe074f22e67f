#include "data/creation/work_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = ".work";
constexpr const char* kParameters = "parameters";

/// Makes the directory with its parents. Returns `path`.
const std::string& make_directory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) throw_io_error(path, "create", error.value());
  return path;
}

std::string as_option(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

}  // namespace

NumberedLocks::NumberedLocks(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!file_) throw_io_error(path, "create", errno);
}

bool NumberedLocks::control(int command, int type, int64_t number) {
  struct flock lock {};
  lock.l_type = static_cast<int16_t>(type);
  lock.l_whence = SEEK_SET;
  lock.l_start = number;
  lock.l_len = 1;
  for (;;) {
    if (fcntl(file_.get(), command, &lock) == 0) return true;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return false;
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP || errno == EINVAL) return true;  // no locks here
    throw_io_error(path_, "lock", errno);
  }
}

bool NumberedLocks::try_lock(int64_t number) { return control(F_OFD_SETLK, F_WRLCK, number); }

void NumberedLocks::lock(int64_t number, bool shared) { control(F_OFD_SETLKW, shared ? F_RDLCK : F_WRLCK, number); }

void NumberedLocks::unlock(int64_t number) { control(F_OFD_SETLK, F_UNLCK, number); }

std::string difference(const Parameters& there, const Parameters& here) {
  const auto value_in = [](const Parameters& list, const std::string& name) -> const std::string* {
    const auto found = std::find_if(list.begin(), list.end(), [&](const auto& each) { return each.first == name; });
    return found == list.end() ? nullptr : &found->second;
  };
  for (const auto& [name, value] : here) {
    const std::string* const other = value_in(there, name);
    if (other == nullptr) return fmt::format("{} is {} here and absent there", as_option(name), value);
    if (*other != value) return fmt::format("{} is {} there and {} here", as_option(name), *other, value);
  }
  for (const auto& [name, value] : there) {
    if (value_in(here, name) == nullptr) return fmt::format("{} is {} there and absent here", as_option(name), value);
  }
  return "";
}

std::string to_lines(const Parameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    if (name.find_first_of("=\n") != std::string::npos || value.find('\n') != std::string::npos)
      throw std::invalid_argument(fmt::format("\"{}\" = \"{}\" does not fit on a line", name, value));
    text += name + "=" + value + "\n";
  }
  return text;
}

Parameters from_lines(const std::string& text) {
  Parameters result;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t equals = std::min(line.find('='), line.size());
    result.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
  }
  return result;
}

WorkDirectory::WorkDirectory(const std::string& output, const Parameters& parameters, bool overwrite)
    : path_((fs::path(output) / kName).string()) {
  locks_.emplace(make_directory(path_) + "/locks");
  if (overwrite) {
    if (!locks_->try_lock(kUse))
      throw DataError(path_ + ": another process works here; wait for its end, or leave --overwrite out to help it");
    for (const auto& entry : fs::directory_iterator(path_)) {
      if (entry.path().filename() != "locks") fs::remove_all(entry.path());
    }
  }
  locks_->lock(kUse, true);
  locks_->lock(kBegin);
  if (const auto there = note(kParameters)) {
    const std::string what = difference(*there, parameters);
    if (!what.empty()) {
      throw DataError(
          fmt::format("{}: was begun with other settings: {}. Write elsewhere, or give --overwrite to start "
                      "over.",
                      output, what));
    }
  } else {
    write_note(kParameters, parameters);
  }
  locks_->unlock(kBegin);
}

std::string WorkDirectory::chunk(size_t number) const { return fmt::format("{}/chunk-{:05}", path_, number); }

std::string WorkDirectory::unnamed_target(size_t number) const {
  return fmt::format("{}/{}.new", path_, target_note(number));
}

std::string WorkDirectory::target_note(size_t number) { return fmt::format("target-{:05}", number); }

void WorkDirectory::write_note(const std::string& name, const Parameters& note) const {
  AtomicFile file(path_ + "/" + name);
  file.write(to_lines(note));
  file.commit();
}

std::optional<Parameters> WorkDirectory::note(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  if (!fs::exists(path)) return std::nullopt;
  return from_lines(read_file(path));
}

void WorkDirectory::remove(const std::string& output) {
  // A process that is about to begin may add a file while this one removes them. It then removes the directory itself.
  std::error_code in_use;
  fs::remove_all(fs::path(output) / kName, in_use);
}

int64_t number_in_note(const Parameters& note, const std::string& name) {
  for (const auto& [key, value] : note) {
    int64_t number = 0;
    if (key == name && std::from_chars(value.data(), value.data() + value.size(), number).ec == std::errc())
      return number;
  }
  throw DataError(fmt::format("a note of the work has no number \"{}\": give --overwrite to start over", name));
}

}  // namespace bert
