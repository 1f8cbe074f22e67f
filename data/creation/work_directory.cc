#include "data/creation/work_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <random>
#include <string_view>
#include <thread>

#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = ".work";
constexpr const char* kParameters = "parameters";
constexpr const char* kRemoving = "removing";

/// 64 random bits: process numbers and names of machines repeat, for example in containers.
std::string name_of_process() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string as_option(std::string name) {
  std::ranges::replace(name, '_', '-');
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
    const auto found = std::ranges::find_if(list, [&](const auto& each) { return each.first == name; });
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
    text += name + "=";
    for (const char c : value) c == '\\' ? text += "\\\\" : c == '\n' ? text += "\\n" : text += c;
    text += "\n";
  }
  return text;
}

Parameters from_lines(const std::string& text) {
  Parameters result;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_part(rest, '\n');
    const size_t equals = std::min(line.find('='), line.size());
    std::string value;
    for (size_t i = equals + 1; i < line.size(); ++i) {
      const bool escaped = line[i] == '\\' && i + 1 < line.size();
      value += !escaped ? line[i] : line[++i] == 'n' ? '\n' : line[i];
    }
    result.emplace_back(line.substr(0, equals), value);
  }
  return result;
}

Note Note::read(const std::string& path) { return {path, from_lines(read_file(path))}; }

int64_t Note::number(const std::string& name, int64_t low, int64_t high) const {
  const std::string text = parameter(values, name);
  if (const auto number = number_of<int64_t>(text); number && *number >= low && *number <= high) return *number;
  throw DataError(fmt::format("{}: {}: expected a number from {} to {}, got \"{}\": give --overwrite to start over",
                              path, name, low, high, text));
}

WorkDirectory::WorkDirectory(const std::vector<std::string>& directories, const Parameters& parameters, bool overwrite,
                             const std::function<void()>& remove_made)
    : path_((fs::path(directories.front()) / kName).string()), process_(name_of_process()) {
  for (const std::string& directory : directories) make_directories((fs::path(directory) / kName).string());
  locks_.emplace(path_ + "/locks");
  if (overwrite || is_being_removed(directories.front())) start_over(overwrite, parameters, remove_made);
  locks_->lock(kUse, true);
  locks_->lock(kBegin);
  if (const auto there = note(kParameters)) {
    const std::string what = difference(there->values, parameters);
    if (!what.empty()) {
      throw DataError(
          fmt::format("{}: was begun with other settings: {}. Write elsewhere, or give --overwrite to start "
                      "over.",
                      directories.front(), what));
    }
  } else {
    write_note(kParameters, parameters);
  }
  locks_->unlock(kBegin);
}

void WorkDirectory::start_over(bool overwrite, const Parameters& parameters, const std::function<void()>& remove_made) {
  if (!locks_->try_lock(kUse)) {
    if (!overwrite) return;  // another process goes on with the removal: lock(kUse) waits for its end
    throw DataError(path_ + ": another process works here; wait for its end, or leave --overwrite out to help it");
  }
  write_note(kRemoving, {});
  for (const auto& entry : fs::directory_iterator(path_)) {
    if (entry.path().filename() != "locks" && entry.path().filename() != kRemoving) fs::remove_all(entry.path());
  }
  remove_made();
  write_note(kParameters, parameters);
  fs::remove(path_ + "/" + kRemoving);
}

std::optional<Note> WorkDirectory::parameters_in(const std::string& output) {
  const std::string path = (fs::path(output) / kName / kParameters).string();
  return fs::exists(path) ? std::optional(Note::read(path)) : std::nullopt;
}

bool WorkDirectory::is_being_removed(const std::string& output) {
  return fs::exists(fs::path(output) / kName / kRemoving);
}

std::string WorkDirectory::chunk(size_t number) const { return fmt::format("{}/chunk-{:05}", path_, number); }

std::string WorkDirectory::unnamed(const std::string& final_path) const {
  const fs::path path = final_path;
  return (path.parent_path() / kName / fmt::format("{}.{}", path.stem().string(), process_)).string();
}

std::string WorkDirectory::target_note(size_t number) { return fmt::format("target-{:05}", number); }

void WorkDirectory::write_note(const std::string& name, const Parameters& note) const {
  write_file(path_ + "/" + name, to_lines(note));
}

std::optional<Note> WorkDirectory::note(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  return fs::exists(path) ? std::optional(Note::read(path)) : std::nullopt;
}

void WorkDirectory::remove(const std::vector<std::string>& directories) {
  // A process that is about to begin may add a file while this one removes them, and processes that remove at the same
  // time hinder each other. So each tries again while something is there.
  constexpr int kTries = 100;
  constexpr std::chrono::milliseconds kPause(5);
  for (size_t i = directories.size(); i-- > 0;) {
    const fs::path path = fs::path(directories[i]) / kName;
    std::error_code in_use, unseen;
    for (int tries = 0; tries < kTries; ++tries) {
      fs::remove_all(path, in_use);
      if (!fs::exists(path, unseen)) break;
      std::this_thread::sleep_for(kPause);
    }
  }
}

void WorkDirectory::remove_abandoned(const std::vector<std::string>& directories) {
  const fs::path path = fs::path(directories.front()) / kName;
  if (!fs::exists(path)) return;
  try {
    NumberedLocks locks((path / "locks").string());
    if (locks.try_lock(kUse)) remove(directories);
  } catch (const IoError&) {
    // Another process removes it at this moment.
  }
}

}  // namespace bert
