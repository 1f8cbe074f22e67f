#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/checkpoint/tensor_diff.h"
#include "app/cli/command_line.h"
#include "app/cli/percentage.h"
#include "app/interop/conversion.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/io/error.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

int64_t total_bytes(const Manifest& manifest) {
  int64_t bytes = 0;
  for (const auto& [name, entry] : manifest) bytes += entry.bytes;
  return bytes;
}

/// The checkpoints of the run directory `path`, oldest first; empty if `path` is not a run directory.
std::vector<CheckpointEntry> checkpoints_of_run(const std::string& path) {
  std::error_code unseen;
  if (fs::exists(path + "/" + kManifestFile, unseen) || !fs::is_directory(path + "/checkpoints", unseen)) return {};
  std::vector<CheckpointEntry> checkpoints = list_checkpoints(path);
  if (checkpoints.empty()) throw InputMissing(path + ": the run has no checkpoint yet");
  return checkpoints;
}

Manifest verify_with_progress(const std::string& directory) {
  Percentage percentage;
  return verify_checkpoint(directory, [&](double share) { percentage.update("verifying", share); });
}

int list(int argc, char** argv) {
  CLI::App app("Verifies every checkpoint of a run, oldest first, and prints a line of JSON for each.",
               "bert checkpoint list");
  app.footer("Example: bert checkpoint list runs/first");
  std::string run_directory;
  app.add_option("RUN_DIRECTORY", run_directory, "run directory")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (!fs::is_directory(run_directory)) throw InputMissing(run_directory + ": no such run directory");
  if (!fs::is_directory(run_directory + "/checkpoints") && !fs::exists(run_directory + "/config.json")) {
    throw InputMissing(run_directory + ": is no run directory: it has neither checkpoints/ nor config.json");
  }
  for (const CheckpointEntry& entry : list_checkpoints(run_directory)) {
    nlohmann::ordered_json line = {{"step", entry.step}, {"path", entry.directory}};
    try {
      line["bytes"] = total_bytes(verify_with_progress(entry.directory));
      line["valid"] = true;
    } catch (const std::runtime_error& error) {
      line["valid"] = false;
      line["why"] = error.what();
    }
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return kOk;
}

void verify_directory(const std::string& directory) {
  const Manifest manifest = verify_with_progress(directory);
  if (const std::string beside = files_beside_manifest(directory, manifest); !beside.empty())
    fmt::print(stderr, "bert checkpoint verify: {}\n", beside);
  size_t tensors = 0;
  for (const auto& [name, entry] : manifest) tensors += entry.tensors.size();
  fmt::print("{}: valid, {} files, {} tensors, {} bytes\n", directory, manifest.size(), tensors, total_bytes(manifest));
}

int verify(int argc, char** argv) {
  CLI::App app("Compares every byte with the manifest. Exit code 65: damaged; 66: a file is missing.",
               "bert checkpoint verify");
  app.footer("Example: bert checkpoint verify runs/first/latest");
  std::vector<std::string> paths;
  app.add_option("PATH", paths, "checkpoint or run directories")->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  for (const std::string& path : paths) {
    std::error_code unseen;
    if (fs::is_regular_file(path, unseen))
      throw InputMissing(path + ": is a file; name the checkpoint directory that has it, or a run directory");
    const std::vector<CheckpointEntry> checkpoints = checkpoints_of_run(path);
    for (const CheckpointEntry& entry : checkpoints) verify_directory(entry.directory);
    if (checkpoints.empty()) verify_directory(path);
  }
  return kOk;
}

/// Prints a line for each tensor that differs between two safetensors files; returns the number of such tensors.
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
  a.expect_whole();
  b.expect_whole();
  return differing;
}

/// `path`, or the file `name` in it if `path` is a directory.
std::string file_of(const std::string& path, const std::string& name) {
  if (!fs::is_directory(path)) return path;
  std::string file = path + "/" + name;
  if (fs::exists(file)) return file;
  throw InputMissing(path + ": is no checkpoint directory: it has no " + name + "; name one like runs/first/latest");
}

/// `path`, or a checkpoint of it if `path` is a run directory: that of `latest`, else the newest valid one.
std::string checkpoint_of(const std::string& path) {
  if (checkpoints_of_run(path).empty()) return path;
  Percentage percentage;
  return find_valid_checkpoint(path, say_in("bert checkpoint diff"),
                               [&](double share) { percentage.update("verifying", share); })
      .directory;
}

/// Compares all tensors of two checkpoints, or the tensors of one file of a checkpoint with those of a file.
int diff(int argc, char** argv) {
  CLI::App app(
      "Prints a line of JSON for every tensor in which two checkpoints differ, then the number of such tensors.",
      "bert checkpoint diff");
  app.footer("Example: bert checkpoint diff runs/first runs/second/checkpoints/step-00000100");
  std::string a, b;
  const char* const what = "checkpoint, run directory (its newest checkpoint) or .safetensors file";
  app.add_option("A", a, what)->required();
  app.add_option("B", b, what)->required();
  if (!parse_command_line(app, argc, argv)) return kOk;
  a = checkpoint_of(a);
  b = checkpoint_of(b);
  const bool both_directories = fs::is_directory(a) && fs::is_directory(b);
  const auto is_optimizer = [](const std::string& path) { return fs::path(path).filename() == kOptimizerFile; };
  const std::string first = is_optimizer(a) || is_optimizer(b) ? kOptimizerFile : kModelFile;
  int64_t differing = diff_files(file_of(a, first), file_of(b, first));
  const std::string a_optimizer = a + "/" + kOptimizerFile, b_optimizer = b + "/" + kOptimizerFile;
  if (both_directories && fs::exists(a_optimizer) && fs::exists(b_optimizer))
    differing += diff_files(a_optimizer, b_optimizer);
  fmt::print("{{\"differing_tensors\": {}}}\n", differing);
  return kOk;
}

/// The checkpoints that `paths` stand for: a run has the `last` newest of those that it keeps, with 0 all.
std::vector<std::string> checkpoints_to_average(const std::vector<std::string>& paths, size_t last) {
  std::vector<std::string> directories;
  for (const std::string& path : paths) {
    const std::vector<CheckpointEntry> of_run = checkpoints_of_run(path);
    if (of_run.empty()) directories.push_back(path);
    if (last > of_run.size() && !of_run.empty())
      throw UsageError(fmt::format("--last {}: {} has {} checkpoints", last, path, of_run.size()));
    for (size_t i = last > 0 ? of_run.size() - last : 0; i < of_run.size(); ++i)
      directories.push_back(of_run[i].directory);
  }
  if (directories.size() < 2) {
    throw UsageError(
        "an average needs two checkpoints or more, and there is one; name more, or a run that keeps more "
        "(keep_checkpoints)");
  }
  return directories;
}

/// Throws DataError unless the weights of `other` mean the same as those of `first`, tensor by tensor.
void check_same_model(const ForeignCheckpoint& first, const ForeignCheckpoint& other) {
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}: {} than in {}; an average needs checkpoints of one model, best of one run",
                                other.path, what, first.path));
  };
  const ModelDescription &a = first.model, &b = other.model;
  if (a.task != b.task || a.labels != b.labels) refuse("another task or other labels");
  if (a.vocabulary != b.vocabulary) refuse("another vocabulary");
  if (a.config.num_attention_heads != b.config.num_attention_heads || a.config.hidden_act != b.config.hidden_act ||
      a.config.layer_norm_eps != b.config.layer_norm_eps)
    refuse("another number of heads, activation or epsilon");
  if (first.tensors.size() != other.tensors.size()) refuse(fmt::format("{} tensors, others", other.tensors.size()));
  for (size_t i = 0; i < first.tensors.size(); ++i) {
    if (first.tensors[i].name != other.tensors[i].name) refuse(other.tensors[i].name + ": another tensor");
    if (first.tensors[i].shape != other.tensors[i].shape) refuse(other.tensors[i].name + ": another shape");
  }
}

/// The means of the tensors of `sources`, which outlive the result: sums in fp64 in the order of the sources, in fp32.
std::vector<TensorSource> means_of(const std::vector<ForeignCheckpoint>& sources) {
  std::vector<TensorSource> means;
  const auto values = std::make_shared<std::vector<float>>();
  for (size_t i = 0; i < sources.front().tensors.size(); ++i) {
    const TensorSource& first = sources.front().tensors[i];
    means.push_back({first.name, "F32", first.shape, [&sources, i, values] {
                       std::vector<double> sums;
                       for (const ForeignCheckpoint& source : sources) {
                         const TensorSource& tensor = source.tensors[i];
                         const std::string_view data = tensor.bytes();
                         int64_t elements = 1;
                         for (const int64_t size : tensor.shape) elements *= size;
                         sums.resize(static_cast<size_t>(elements));
                         for (int64_t k = 0; k < elements; ++k)
                           sums[static_cast<size_t>(k)] += tensor_element(tensor.dtype, data, k);
                       }
                       values->clear();
                       for (const double sum : sums)
                         values->push_back(static_cast<float>(sum / static_cast<double>(sources.size())));
                       return std::string_view(reinterpret_cast<const char*>(values->data()),
                                               values->size() * sizeof(float));
                     }});
  }
  return means;
}

/// Writes a checkpoint whose weights are the means of those of several checkpoints.
int average(int argc, char** argv) {
  CLI::App app(
      "Writes a checkpoint of step 0, without an optimizer, whose weights are the means of those of several "
      "checkpoints "
      "of a run, in fp32. predict, evaluate, export, convert and initial_checkpoint take it. Prints a line of JSON.",
      "bert checkpoint average");
  app.footer(
      "Of a run with optimizer.ema_decay the moving averages are taken.\n"
      "Example: bert checkpoint average runs/first --last 3 --output runs/average");
  std::vector<std::string> paths;
  std::string output;
  size_t last = 0;
  bool raw_weights = false, overwrite = false;
  app.add_option("PATH", paths, "checkpoints, or run directories with all checkpoints that they keep")->required();
  app.add_option("--last", last, "of a run directory the newest so many alone")->check(CLI::PositiveNumber);
  app.add_option("--output", output, "directory to write; absent or empty")->required();
  app.add_flag("--raw-weights", raw_weights, "the weights themselves, not their moving averages");
  app.add_flag("--overwrite", overwrite, "replace the model that --output holds");
  if (!parse_command_line(app, argc, argv)) return kOk;
  const std::vector<std::string> directories = checkpoints_to_average(paths, last);
  for (const std::string& path : directories) check_output_directory({"--output", output}, {"PATH", path}, overwrite);
  Percentage percentage;
  std::vector<ForeignCheckpoint> sources;
  for (const std::string& directory : directories) {
    sources.push_back(read_own_checkpoint(directory, raw_weights, say_in("bert checkpoint average"),
                                          [&](double share) { percentage.update("verifying", share); }));
    check_same_model(sources.front(), sources.back());
  }
  ForeignCheckpoint mean = sources.front();
  mean.tensors = means_of(sources);
  write_own_checkpoint(output, mean, [&](double share) { percentage.update("writing", share); });
  const nlohmann::ordered_json line = {
      {"output", output}, {"checkpoints", directories}, {"tensors", mean.tensors.size()}};
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return kOk;
}

constexpr Action kCheckpointActions[] = {
    {"list", list, "lists the checkpoints of a run and verifies them"},
    {"verify", verify, "compares every byte with the manifest"},
    {"diff", diff, "compares two checkpoints tensor by tensor"},
    {"average", average, "averages the weights of several checkpoints"},
};

}  // namespace

int checkpoint_command(int argc, char** argv) {
  return run_action(
      {.program = "bert checkpoint", .example = "bert checkpoint list runs/first", .actions = kCheckpointActions}, argc,
      argv);
}

}  // namespace bert
