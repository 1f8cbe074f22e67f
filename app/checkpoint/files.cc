#include "app/checkpoint/files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "app/parse/bounded_json.h"
#include "app/system/fail_point.h"
#include "data/io/atomic_directory.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kStepPrefix = "step-";
constexpr const char* kDamagedSuffix = ".damaged";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
// Disk space that the manifest may need: kManifestBytes for its entries of files and the unused rest of each file's
// last block, kManifestBytesOfTensor for its entry of a tensor, whose name has fewer than 100 letters.
constexpr int64_t kManifestBytes = 32 << 10, kManifestBytesOfTensor = 160;

[[noreturn]] void throw_system(const std::string& path, const char* action, int error) {
  throw IoError(fmt::format("{}: cannot {}: {}", path, action, std::strerror(error)));
}

std::string checkpoints_directory(const std::string& run_directory) { return run_directory + "/checkpoints"; }

std::string name_of(int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

/// The step of a directory name like "step-00000100" or "step-100"; nothing for other names.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = number_of<int64_t>(std::string_view(name).substr(std::strlen(kStepPrefix)));
  return step && *step >= 0 ? step : std::nullopt;
}

std::string last_line(const std::string& before) {
  return fmt::format("\"checksum\": \"{}\"}}\n", checksum(before.data(), before.size()));
}

std::string write_manifest(const Manifest& manifest) {
  json files = json::object();
  for (const auto& [name, entry] : manifest) {
    files[name] = {{"bytes", entry.bytes}, {"xxh3_128", entry.checksum}};
    if (!entry.tensors.empty()) files[name]["tensors"] = entry.tensors;
  }
  // The checksum is on the last line. The whole text is still one JSON object.
  const std::string before = fmt::format("{{\"format_version\": {},\n\"files\": {},\n", kFormatVersion, files.dump(1));
  return before + last_line(before);
}

/// Names the damaged tensor of a damaged file, as far as it can be told.
std::string damaged_part(const std::string& path, const ManifestEntry& entry) {
  if (entry.tensors.empty()) return "its checksum is not the manifest's";
  try {
    const SafetensorsFile file(path);
    for (const TensorInfo& tensor : file.tensors()) {
      const auto listed = entry.tensors.find(tensor.name);
      if (listed == entry.tensors.end()) return "tensor " + tensor.name + " is not in the manifest";
      const std::string_view data = file.data(tensor);
      if (checksum(data.data(), data.size()) != listed->second)
        return "the checksum of tensor " + tensor.name + " is not the manifest's";
    }
    return "the checksum of its header is not the manifest's";
  } catch (const DataError& error) {
    return error.what();
  }
}

/// Throws DataError for a directory, a pipe, a device or a link to itself. To open one of them could block.
void check_regular(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw InputMissing(path + ": no such file");
  if (status.type() != fs::file_type::regular) throw DataError(path + ": damaged: is not a regular file");
}

/// Compares a file with its manifest entry. `read` is called with the bytes of each piece.
void verify_file(const std::string& path, const ManifestEntry& entry, const std::function<void(int64_t bytes)>& read) {
  constexpr int64_t kPieceBytes = 16 << 20;  // 0.1 s on a disk of 160 MB/s
  check_regular(path);
  const MappedFile file(path);
  if (file.size() != entry.bytes) {
    throw DataError(fmt::format("{}: damaged: {} bytes, the manifest says {}", path, file.size(), entry.bytes));
  }
  Checksum sum;
  for (int64_t begin = 0; begin < file.size(); begin += kPieceBytes) {
    const int64_t bytes = std::min(kPieceBytes, file.size() - begin);
    sum.update(file.data() + begin, static_cast<size_t>(bytes));
    read(bytes);
  }
  if (sum.hexadecimal() != entry.checksum) {
    throw DataError(fmt::format("{}: damaged: {}", path, damaged_part(path, entry)));
  }
}

/// Throws DataError if the step in state.json is not that of the directory's name. A renamed checkpoint, or one with
/// the state of another checkpoint, would continue at a step that the run never reached.
void verify_step(const std::string& directory) {
  const std::optional<int64_t> named = step_of((fs::path(directory) / "").parent_path().filename().string());
  if (!named) return;
  const std::string path = directory + "/" + kStateFile;
  const int64_t step = integer_member(parse_bounded_json(read_file(path), path), "step", path);
  if (step == *named) return;
  throw DataError(fmt::format("{}: damaged: is of step {}, and its directory is named after step {}; rename that to {}",
                              path, step, *named, name_of(step)));
}

void rename_path(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) throw_system(from, ("rename to " + to).c_str(), errno);
}

/// Removes a checkpoint under a temporary name, so that a half-removed checkpoint is never found. NFS keeps a file that
/// another process has open: the next start removes the rest.
void remove_checkpoint(const std::string& directory) {
  const fs::path path(directory);
  const std::string doomed =
      (path.parent_path() / (kTemporaryDirectoryPrefix + path.filename().string() + "-removed")).string();
  std::error_code busy;
  fs::remove_all(doomed, busy);
  if (fs::exists(doomed, busy)) return;
  rename_path(directory, doomed);
  fs::remove_all(doomed, busy);
}

/// Lets RUN/latest point to the checkpoint of `step`; does nothing if it does already.
void link_latest(const std::string& run_directory, int64_t step) {
  const std::string target = fs::path(checkpoint_directory("", step)).relative_path().string(),
                    latest = run_directory + "/latest", temporary = latest + ".tmp";
  std::error_code absent;
  if (fs::read_symlink(latest, absent) == target) return;
  unlink(temporary.c_str());
  if (symlink(target.c_str(), temporary.c_str()) != 0) throw_system(temporary, "create", errno);
  rename_path(temporary, latest);
  sync_path(run_directory);
}

/// Renames a directory and returns its new name.
std::string set_aside(const std::string& directory) {
  std::string aside = directory + kDamagedSuffix;
  for (int count = 2; fs::exists(aside); ++count) aside = fmt::format("{}{}-{}", directory, kDamagedSuffix, count);
  rename_path(directory, aside);
  return aside;
}

/// The entries of a directory; none if it is absent. Throws IoError if it cannot be read: unreadable checkpoints must
/// not count as absent.
std::vector<fs::path> entries_of(const std::string& directory) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator item(directory, error);
  for (; !error && item != fs::directory_iterator(); item.increment(error)) entries.push_back(item->path());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory) {
    throw IoError(fmt::format("{}: cannot read this directory: {}", directory, error.message()));
  }
  return entries;
}

}  // namespace

std::string checkpoint_directory(const std::string& run_directory, int64_t step) {
  return checkpoints_directory(run_directory) + "/" + name_of(step);
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& run_directory) {
  std::vector<CheckpointEntry> found;
  for (const fs::path& entry : entries_of(checkpoints_directory(run_directory))) {
    const std::string name = entry.filename().string();
    if (const auto step = step_of(name); step && name == name_of(*step)) found.push_back({*step, entry.string()});
  }
  std::ranges::sort(found, [](const CheckpointEntry& a, const CheckpointEntry& b) { return a.step < b.step; });
  return found;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = directory + "/" + kManifestFile;
  std::error_code unknown;
  const auto missing = [&](const std::string& what) {
    return InputMissing(fmt::format("{}: {}; name a run directory or one of its checkpoints/", directory, what));
  };
  if (!fs::is_directory(directory, unknown)) throw missing("no such checkpoint directory");
  if (!fs::exists(path, unknown) && !fs::is_symlink(path, unknown))
    throw missing(fmt::format("is no checkpoint: it has no {}", kManifestFile));
  check_regular(path);
  const std::string text = read_file(path, kMaxManifestBytes);
  const size_t newline = text.size() < 2 ? std::string::npos : text.rfind('\n', text.size() - 2);
  const std::string before = text.substr(0, newline == std::string::npos ? 0 : newline + 1);
  if (before.empty() || text.substr(before.size()) != last_line(before)) {
    throw DataError(path + ": damaged: its last line is not the checksum of what precedes it");
  }
  const json document = parse_bounded_json(text, path);
  if (const int64_t version = integer_member(document, "format_version", path); version != kFormatVersion) {
    throw DataError(fmt::format("{}: format version {}, this program knows {}", path, version, kFormatVersion));
  }
  Manifest manifest;
  for (const auto& [name, file] : member(document, "files", json::value_t::object, path).items()) {
    if (name.empty() || name.find('/') != std::string::npos || name.front() == '.')
      throw DataError(path + ": not a file name: " + name);
    if (!file.is_object()) throw DataError(path + ": " + name + ": want an object {...}");
    ManifestEntry& entry = manifest[name];
    entry.bytes = integer_member(file, "bytes", path);
    entry.checksum = string_member(file, "xxh3_128", path);
    if (!file.contains("tensors")) continue;
    const json& tensors = member(file, "tensors", json::value_t::object, path);
    for (const auto& item : tensors.items())
      entry.tensors[item.key()] = string_member(tensors, item.key().c_str(), path);
  }
  for (const char* required : {kModelFile, kStateFile}) {
    if (manifest.count(required) == 0) throw DataError(path + ": does not list " + required);
  }
  return manifest;
}

std::string files_beside_manifest(const std::string& directory, const Manifest& manifest) {
  std::string names;
  for (const fs::path& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (name != kManifestFile && !manifest.contains(name)) names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? names
                       : fmt::format(
                             "{}: has {}, which the manifest does not list; remove what does not belong to the "
                             "checkpoint",
                             directory, names);
}

Manifest verify_checkpoint(const std::string& directory, const std::function<void(double share)>& progress) {
  Manifest manifest = read_manifest(directory);
  int64_t done = 0, all = 0;
  for (const auto& [name, entry] : manifest) all += entry.bytes;
  const auto read = [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
  };
  for (const auto& [name, entry] : manifest) verify_file(directory + "/" + name, entry, read);
  verify_step(directory);
  return manifest;
}

VerifiedCheckpoint find_valid_checkpoint(const std::string& given,
                                         const std::function<void(const std::string& message)>& note,
                                         const std::function<void(double share)>& progress) {
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string latest = path + "/latest";
  std::error_code unknown;
  const bool linked = fs::is_symlink(latest, unknown), there = fs::exists(latest, unknown);
  const bool is_run = linked || there || fs::is_directory(checkpoints_directory(path), unknown);
  if (!is_run || fs::exists(path + "/" + kManifestFile, unknown)) return {path, verify_checkpoint(path, progress)};

  std::string tried, why;
  const auto valid = [&](const std::string& directory) -> std::optional<VerifiedCheckpoint> {
    tried = directory;
    try {
      return VerifiedCheckpoint{directory, verify_checkpoint(directory, progress)};
    } catch (const DataError& error) {
      if (why.empty()) why = error.what();
    } catch (const InputMissing& error) {
      if (why.empty()) why = error.what();
    }
    return std::nullopt;
  };
  if (there) {
    // The target as the link states it: a path that is the same on every machine.
    const std::string directory = linked ? (fs::path(path) / fs::read_symlink(latest)).string() : latest;
    if (auto found = valid(directory)) return *std::move(found);
  } else {
    why = latest + (linked ? ": points to nothing" : ": is not there");
  }
  const std::string of_latest = tried;
  const std::vector<CheckpointEntry> entries = list_checkpoints(path);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (fs::equivalent(entry->directory, of_latest, unknown)) continue;
    if (auto found = valid(entry->directory)) {
      note(fmt::format("{}; using {}", why, found->directory));
      return *std::move(found);
    }
  }
  if (tried.empty()) throw InputMissing(path + ": the run has no checkpoint yet");
  throw DataError(fmt::format("{}: has no valid checkpoint: {}", path, why));
}

std::optional<CheckpointEntry> newest_valid_checkpoint(const std::string& run_directory,
                                                       const std::function<void(const std::string& message)>& report) {
  std::error_code unknown;
  const std::string directory = checkpoints_directory(run_directory);
  if (fs::exists(directory, unknown) && !fs::is_directory(directory, unknown)) {
    throw IoError(directory +
                  ": is a file, and the run keeps its checkpoints in a directory of this name; move it away");
  }
  for (const fs::path& entry : entries_of(directory)) {
    const std::string name = entry.filename().string();
    if (name.rfind(kTemporaryDirectoryPrefix, 0) == 0) {
      std::error_code busy;  // NFS keeps a file that another process has open
      fs::remove_all(entry, busy);
      if (busy) report(fmt::format("{}: cannot remove: {}", entry.string(), busy.message()));
    }
    const std::optional<int64_t> step = step_of(name);
    if (step && name != name_of(*step)) {
      report(fmt::format("{}: is left alone: the checkpoint of step {} is named {}", entry.string(), *step,
                         name_of(*step)));
    }
  }

  std::vector<CheckpointEntry> entries = list_checkpoints(run_directory);
  std::vector<std::pair<std::string, std::string>> damaged;  // with the reasons
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      const Manifest manifest = verify_checkpoint(entry->directory);
      if (const std::string beside = files_beside_manifest(entry->directory, manifest); !beside.empty()) report(beside);
      for (const auto& [other, why] : damaged)
        report(fmt::format("damaged checkpoint set aside as {}: {}", set_aside(other), why));
      if (const std::string latest = run_directory + "/latest"; fs::is_directory(fs::symlink_status(latest)))
        report(fmt::format("{}: is a copy and no link; it is now {}", latest, set_aside(latest)));
      link_latest(run_directory, entry->step);
      return *entry;
    } catch (const DataError& error) {
      damaged.emplace_back(entry->directory, error.what());
    } catch (const InputMissing& error) {
      damaged.emplace_back(entry->directory, error.what());
    }
  }
  if (damaged.empty()) return std::nullopt;
  std::string whys;
  for (const auto& [other, why] : damaged) whys += "\n  " + why;
  throw DataError(fmt::format("{}: has no valid checkpoint; remove this directory to start again:{}", directory, whys));
}

void finish_checkpoint(const std::string& run_directory, int64_t step, int64_t keep) {
  fail_point(FailPoint::kCheckpointLatest);
  link_latest(run_directory, step);
  fail_point(FailPoint::kCheckpointPrune);
  const std::vector<CheckpointEntry> entries = list_checkpoints(run_directory);
  for (int64_t i = 0; i + keep < static_cast<int64_t>(entries.size()); ++i) {
    if (const CheckpointEntry& old = entries[static_cast<size_t>(i)]; old.step != step)
      remove_checkpoint(old.directory);
  }
}

CheckpointWriter::CheckpointWriter(std::string directory, const CheckpointSize& size)
    : directory_(std::move(directory)) {
  check_free_space(directory_.final_name(), size.bytes + kManifestBytes + size.tensors * kManifestBytesOfTensor,
                   "a checkpoint");
}

void CheckpointWriter::add_tensors(const std::string& file, const std::vector<TensorSource>& tensors) {
  AtomicFile out(directory_.temporary() + "/" + file);
  Checksum sum;
  ManifestEntry& entry = manifest_[file];
  entry.tensors = write_safetensors(
      [&](const void* data, size_t bytes) {
        out.write(data, bytes);
        sum.update(data, bytes);
        fail_point(FailPoint::kCheckpointWrite);
      },
      tensors);
  entry.bytes = out.size();
  entry.checksum = sum.hexadecimal();
  fail_point(FailPoint::kCheckpointFsync);
  out.commit();
}

void CheckpointWriter::add_text(const std::string& file, const std::string& text) {
  AtomicFile out(directory_.temporary() + "/" + file);
  out.write(text);
  manifest_[file] = {out.size(), checksum(text.data(), text.size()), {}};
  fail_point(FailPoint::kCheckpointFsync);
  out.commit();
}

void CheckpointWriter::publish() {
  fail_point(FailPoint::kCheckpointManifest);
  write_file(directory_.temporary() + "/" + kManifestFile, write_manifest(manifest_));  // the last file
  fail_point(FailPoint::kCheckpointRename);
  directory_.publish();
  fail_point(FailPoint::kCheckpointRenamed);
}

}  // namespace bert
