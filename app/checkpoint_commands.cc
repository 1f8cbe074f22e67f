#include "app/checkpoint_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "app/checkpoint_files.h"
#include "app/command_line.h"
#include "app/tensor_diff.h"
#include "data/error.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

int64_t total_bytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [name, entry] : manifest) bytes += entry.bytes;
  return bytes;
}

void list(const std::string& run_directory) {
  if (!fs::is_directory(run_directory)) throw InputMissing(run_directory + ": no such run directory");
  if (!fs::is_directory(run_directory + "/checkpoints") && !fs::exists(run_directory + "/config.json")) {
    throw InputMissing(run_directory + ": is no run directory: it has neither checkpoints/ nor config.json");
  }
  for (const CheckpointEntry& entry : list_checkpoints(run_directory)) {
    nlohmann::ordered_json line = {{"step", entry.step}, {"path", entry.directory}};
    try {
      line["bytes"] = total_bytes(verify_checkpoint(entry.directory));
      line["valid"] = true;
    } catch (const std::runtime_error& error) {
      line["valid"] = false;
      line["why"] = error.what();
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
}

void verify(const std::string& path) {
  std::vector<std::string> directories = {path};
  if (!fs::exists(path + "/" + kManifestFile) && fs::is_directory(path + "/checkpoints")) {  // a whole run
    directories.clear();
    for (const CheckpointEntry& entry : list_checkpoints(path)) directories.push_back(entry.directory);
    if (directories.empty()) throw InputMissing(path + ": the run has no checkpoint yet");
  }
  for (const std::string& directory : directories) {
    const Manifest manifest = verify_checkpoint(directory);
    size_t tensors = 0;
    for (const auto& [name, entry] : manifest) tensors += entry.tensors.size();
    fmt::print("{}: valid, {} files, {} tensors, {} bytes\n", directory, manifest.size(), tensors,
               total_bytes(manifest));
  }
}

/// Prints what differs between two safetensors files and returns how many tensors do.
int64_t diff_files(const std::string& a_path, const std::string& b_path) {
  const SafetensorsFile a(a_path), b(b_path);
  int64_t differing = 0;
  std::set<std::string> names;
  for (const TensorInfo& tensor : a.tensors()) names.insert(tensor.name);
  for (const TensorInfo& tensor : b.tensors()) names.insert(tensor.name);
  for (const std::string& name : names) {
    const TensorDifference difference = compare_tensors(a, b, name);
    if (difference.equal) continue;
    ++differing;
    nlohmann::ordered_json line = {{"tensor", name}};
    if (difference.note.empty()) {
      line["max_abs_difference"] = difference.max_abs;
      line["elements"] = difference.elements;
    } else {
      line["note"] = difference.note;
    }
    fmt::print("{}\n", line.dump());
  }
  return differing;
}

/// `path` itself, or the file `name` in it when it is a directory.
std::string file_of(const std::string& path, const std::string& name) {
  if (!fs::is_directory(path)) return path;
  const std::string file = path + "/" + name;
  if (fs::exists(file)) return file;
  throw InputMissing(path + ": is no checkpoint directory: it has no " + name + "; name one like runs/first/latest");
}

/// Two checkpoints in all of their tensors; a checkpoint and a file in those of one kind.
void diff(const std::string& a, const std::string& b) {
  const bool both_directories = fs::is_directory(a) && fs::is_directory(b);
  const auto is_optimizer = [](const std::string& path) { return fs::path(path).filename() == kOptimizerFile; };
  const std::string first = is_optimizer(a) || is_optimizer(b) ? kOptimizerFile : kModelFile;
  int64_t differing = diff_files(file_of(a, first), file_of(b, first));
  const std::string a_optimizer = a + "/" + kOptimizerFile, b_optimizer = b + "/" + kOptimizerFile;
  if (both_directories && fs::exists(a_optimizer) && fs::exists(b_optimizer))
    differing += diff_files(a_optimizer, b_optimizer);
  fmt::print("{{\"differing_tensors\": {}}}\n", differing);
}

}  // namespace

int checkpoint_command(int argc, char** argv) {
  CLI::App app("Checks and compares checkpoints.", "bert checkpoint");
  app.require_subcommand(1);
  app.footer("Example: bert checkpoint verify runs/first/latest");
  std::string path, other;
  std::vector<std::string> paths;

  CLI::App* list_verb =
      app.add_subcommand("list", "A line of JSON for every checkpoint of a run, oldest first, each verified");
  list_verb->add_option("RUN_DIRECTORY", path, "run directory")->required();
  list_verb->callback([&] { list(path); });

  CLI::App* verify_verb =
      app.add_subcommand("verify", "Compares every byte with the manifest; 65 damaged, 66 something is missing");
  verify_verb->add_option("PATH", paths, "checkpoint or run directories")->required();
  verify_verb->callback([&] { std::for_each(paths.begin(), paths.end(), verify); });

  CLI::App* diff_verb =
      app.add_subcommand("diff", "A line of JSON for every tensor in which two checkpoints differ, then their number");
  diff_verb->add_option("A", path, "checkpoint directory or .safetensors file")->required();
  diff_verb->add_option("B", other, "checkpoint directory or .safetensors file")->required();
  diff_verb->callback([&] { diff(path, other); });

  parse_command_line(app, argc, argv);
  return 0;
}

}  // namespace bert
