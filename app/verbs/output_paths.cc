#include "app/verbs/output_paths.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "app/checkpoint/files.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

bool same_file(const std::string& a, const std::string& b) {
  std::error_code unknown;  // set for the name of a pipe; the result is empty then
  const fs::path target = fs::weakly_canonical(fs::absolute(a), unknown);
  return (!target.empty() && target == fs::weakly_canonical(fs::absolute(b), unknown)) || fs::equivalent(a, b, unknown);
}

}  // namespace

void check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  std::vector<NamedPath> taken = inputs;
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    const std::string target = writable_target(output.path);
    for (const NamedPath& other : taken) {
      if (other.path.empty() || !same_file(target, other.path)) continue;
      throw UsageError(fmt::format("{} {}: is the same file as {} {}; write elsewhere", output.name, output.path,
                                   other.name, other.path));
    }
    const fs::path manifest = fs::absolute(target).parent_path() / kManifestFile;
    if (fs::exists(manifest)) {
      throw UsageError(
          fmt::format("{} {}: lies in a checkpoint ({} is there), which a new file would damage; write "
                      "elsewhere",
                      output.name, output.path, manifest.string()));
    }
    const AtomicFile probe(output.path);  // throws IoError if the directory is not writable
    taken.push_back({output.name, target});
  }
}

void check_output_directory(const NamedPath& output, const NamedPath& input, bool overwrite) {
  const std::string named = output.name + " " + output.path;
  if (same_file(output.path, input.path))
    throw UsageError(fmt::format("{}: is the same directory as {} {}; write elsewhere", named, input.name, input.path));
  fs::path path = fs::absolute(output.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (const fs::path manifest = path.parent_path() / kManifestFile; fs::exists(manifest)) {
    throw UsageError(
        fmt::format("{}: lies in a checkpoint ({} is there), which a new directory would damage; write elsewhere",
                    named, manifest.string()));
  }
  if (!fs::exists(fs::symlink_status(path))) return;
  if (!fs::is_directory(fs::symlink_status(path)))
    throw IoError(named + ": is there and no directory; remove it or write elsewhere");
  if (fs::is_empty(path)) return;
  if (!overwrite)
    throw UsageError(named + ": is there and has files; --overwrite replaces a model, or write elsewhere");
  bool has_model = false;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    has_model = has_model || name == kModelFile || name == "config.json";
    if (!entry.is_regular_file()) {
      throw UsageError(
          fmt::format("{}: has {}, which is no file of a model; remove the directory yourself", named, name));
    }
  }
  if (!has_model)
    throw UsageError(
        fmt::format("{}: has neither {} nor config.json, so it is no model; remove it yourself", named, kModelFile));
}

std::vector<NamedPath> named_paths(const std::string& name, const std::vector<std::string>& paths) {
  std::vector<NamedPath> result;
  result.reserve(paths.size());
  for (const std::string& path : paths) result.push_back({name, path});
  return result;
}

}  // namespace bert
