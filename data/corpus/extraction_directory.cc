#include "data/corpus/extraction_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "data/corpus/input_files.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSummary = ".extract.json";
constexpr const char* kState = ".extract.state";
constexpr std::string_view kTemporary = ".tmp-";  // in AtomicFile's names

/// The number of 00012.txt; empty for other names.
std::optional<int64_t> text_number(std::string_view name) {
  constexpr std::string_view kEnd = ".txt";
  return name.ends_with(kEnd) ? number_of<int64_t>(name.substr(0, name.size() - kEnd.size())) : std::nullopt;
}

/// True for AtomicFile's temporary names of an extraction's files.
bool is_temporary(std::string_view name) {
  const size_t mark = name.find(kTemporary);
  if (mark == std::string_view::npos) return false;
  const std::string_view target = name.substr(0, mark);
  return target == kState || target == kSummary || text_number(target).has_value();
}

/// The first difference between two lists of settings, "--min-words is 10 there and 5 here"; empty if they are equal.
std::string first_difference(const Settings& there, const Settings& here) {
  const auto value_in = [](const Settings& list, const std::string& name) {
    const auto found = std::ranges::find_if(list, [&](const auto& each) { return each.first == name; });
    return found == list.end() ? std::string("absent") : found->second;
  };
  for (const Settings* list : {&here, &there}) {
    for (const auto& [name, value] : *list) {
      const std::string before = value_in(there, name), now = value_in(here, name);
      if (before != now) return fmt::format("{} is {} there and {} here", name, before, now);
    }
  }
  return "";
}

}  // namespace

int64_t figure(const Figures& figures, const std::string& name) {
  const auto found = std::ranges::find_if(figures, [&](const auto& each) { return each.first == name; });
  if (found != figures.end()) return found->second;
  throw DataError(
      fmt::format("the state of the extraction has no number \"{}\"; remove the directory to start over", name));
}

ExtractionDirectory::ExtractionDirectory(std::string path, Settings settings)
    : path_(std::move(path)), settings_(std::move(settings)) {
  make_directories(path_);
  lock();
  const std::vector<std::string> names = names_in(path_);
  const bool has_state = std::ranges::find(names, kState) != names.end();
  const int64_t files = has_state ? read_state() : 0;
  for (const std::string& name : names) {
    const auto number = text_number(name);
    if (is_temporary(name) || name == kSummary || (number && *number >= files)) fs::remove(file(name));
  }
}

std::string ExtractionDirectory::file(const std::string& name) const { return (fs::path(path_) / name).string(); }

std::string ExtractionDirectory::text_file(int64_t number) const { return file(fmt::format("{:05}.txt", number)); }

/// Throws IoError unless the files are those of an extraction that is not finished.
void ExtractionDirectory::check_names(const std::vector<std::string>& names) const {
  const bool unfinished = std::ranges::find(names, kUnfinishedExtraction) != names.end();
  for (const std::string& name : names) {
    if (!unfinished && name == kSummary)
      throw IoError(path_ + ": an extraction has been finished here; name another directory, or remove this one");
    const bool ours = name == kUnfinishedExtraction ||
                      (unfinished && (name == kSummary || name == kState || text_number(name) || is_temporary(name)));
    if (!ours)
      throw IoError(fmt::format("{}: holds a file that no extraction wrote: {}; name an empty directory", path_, name));
  }
}

/// Locks the mark, or makes it. A process that finishes removes the mark, so a lock counts only if its file is still there.
void ExtractionDirectory::lock() {
  const std::string mark = file(kUnfinishedExtraction);
  while (true) {
    std::vector<std::string> names = names_in(path_);
    check_names(names);
    const bool exists = std::ranges::find(names, kUnfinishedExtraction) != names.end();
    lock_ = Descriptor(open(mark.c_str(), O_RDWR | O_CLOEXEC | (exists ? 0 : O_CREAT | O_EXCL), 0666));
    if (!lock_ && errno == (exists ? ENOENT : EEXIST)) continue;
    if (!lock_) throw_io_error(path_, "write", errno);
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
      throw IoError(path_ + ": another process extracts into this directory; wait for it, or name another directory");
    if (!is_at(lock_, mark)) continue;
    if (exists) return;
    // A process may have begun and finished between the look at the names and the new mark.
    names = names_in(path_);
    std::erase(names, kUnfinishedExtraction);
    if (names.empty()) return;
    fs::remove(mark);
  }
}

/// Reads the state of a killed process. Returns its number of finished files.
int64_t ExtractionDirectory::read_state() {
  const std::string path = file(kState);
  Settings there;
  int64_t files = 0;
  try {
    const Json state = Json::parse(read_file(path));
    for (const auto& [name, value] : state.at("settings").items()) there.emplace_back(name, value.get<std::string>());
    files = state.at("files").get<int64_t>();
    saved_.emplace();
    for (const auto& [name, value] : state.at("figures").items()) saved_->emplace_back(name, value.get<int64_t>());
  } catch (const Json::exception& error) {
    throw DataError(
        fmt::format("{}: is no state of an extraction ({}); remove {} to start over", path, error.what(), path_));
  }
  const std::string what = first_difference(there, settings_);
  if (!what.empty()) {
    throw DataError(
        fmt::format("{}: an extraction was begun here with other settings: {}. Give the same to continue it, or remove "
                    "the directory to start over.",
                    path_, what));
  }
  return files;
}

void ExtractionDirectory::save(int64_t files, const Figures& figures) {
  Json state = {{"settings", Json::object()}, {"files", files}, {"figures", Json::object()}};
  for (const auto& [name, value] : settings_) state["settings"][name] = value;
  for (const auto& [name, value] : figures) state["figures"][name] = value;
  write_file(file(kState), state.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void ExtractionDirectory::finish(const std::string& summary) {
  write_file(file(kSummary), summary + "\n");
  fs::remove(file(kUnfinishedExtraction));
  fs::remove(file(kState));
  sync_path(path_);
}

}  // namespace bert
