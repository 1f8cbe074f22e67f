#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "app/checkpoint/files.h"
#include "app/cli/command_line.h"
#include "app/report/view/report_data.h"
#include "app/report/view/report_markdown.h"
#include "app/report/view/report_page.h"
#include "app/report/view/run_series.h"
#include "app/system/errors.h"
#include "app/system/exit_codes.h"
#include "app/verbs/output_paths.h"
#include "app/verbs/verbs.h"
#include "data/formats/example_set.h"
#include "data/formats/shard.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

std::vector<ReportedCheckpoint> checkpoints_of(const std::string& run_directory) {
  std::vector<ReportedCheckpoint> checkpoints;
  for (const CheckpointEntry& entry : list_checkpoints(run_directory)) {
    ReportedCheckpoint checkpoint{.step = entry.step, .problem = {}};
    try {
      for (const auto& [name, file] : read_manifest(entry.directory)) {
        checkpoint.bytes += file.bytes;
        ++checkpoint.files;
      }
    } catch (const std::runtime_error& error) {
      checkpoint.problem = error.what();
    }
    checkpoints.push_back(std::move(checkpoint));
  }
  return checkpoints;
}

/// The paths of the shards that a resolved configuration names: data.train, or those of data.sources.
std::vector<std::string> shards_of(const nlohmann::json& config) {
  std::vector<std::string> paths;
  const auto add = [&](const nlohmann::json& path) {
    if (path.is_string()) paths.push_back(path.get<std::string>());
  };
  const nlohmann::json data = config.value("data", nlohmann::json::object());
  for (const nlohmann::json& path : data.value("train", nlohmann::json::array())) add(path);
  for (const nlohmann::json& source : data.value("sources", nlohmann::json::array())) {
    if (source.is_object()) add(source.value("path", nlohmann::json()));
  }
  return paths;
}

/// Counts the lengths of at most 20,000 examples, at even distances.
ReportedLengths count_lengths(const std::vector<std::string>& paths) {
  constexpr size_t kMostCounted = 20'000;  // the share of each bin is then within 0.7 % of that of all rows
  const PretrainingShards shards(paths);
  ReportedLengths lengths;
  lengths.examples = shards.size();
  for (const auto& shard : shards.shards())
    lengths.max_seq_length = std::max(lengths.max_seq_length, shard->manifest().max_seq_length);
  ExampleCounts counts;
  for (const size_t row : evenly(static_cast<size_t>(shards.size()), kMostCounted))
    counts.add(shards.example(static_cast<int64_t>(row)));
  lengths.counted = counts.examples;
  lengths.mean_length = static_cast<double>(counts.tokens) / static_cast<double>(counts.examples);
  for (const LengthBin& bin : counts.length_bins()) lengths.bins.push_back({bin.shortest, bin.longest, bin.examples});
  return lengths;
}

ReportedLengths lengths_of(const nlohmann::json& config) {
  const auto absent = [](std::string reason) {
    ReportedLengths lengths;
    lengths.absent = std::move(reason);
    return lengths;
  };
  if (!config.is_object()) return absent("the run has no config.json, which names its shards");
  try {
    const std::vector<std::string> paths = shards_of(config);
    return paths.empty() ? absent("the configuration names no shards") : count_lengths(paths);
  } catch (const InputMissing& error) {
    return absent(error.what());
  } catch (const DataError& error) {
    return absent(error.what());
  } catch (const IoError& error) {
    return absent(error.what());
  } catch (const nlohmann::json::type_error&) {
    return absent("the configuration names its shards in a form that this version does not read");
  }
}

ReportedRun report_run(const std::string& directory) {
  ReportedRun run{.files = read_run(directory), .series = {}, .checkpoints = {}, .lengths = {}};
  run.series = series_of(run.files.metrics, setting(run.files.config, "/global_batch_size"));
  run.checkpoints = checkpoints_of(directory);
  run.lengths = lengths_of(run.files.config);
  return run;
}

/// The files of the runs, none of which a report may replace.
std::vector<NamedPath> files_of(const std::vector<std::string>& directories) {
  constexpr const char* kFiles[] = {"config.json",          "metrics.jsonl",    "run.log", "summary.json",
                                    "attempts.jsonl",       "layers.jsonl",     "lock",    "answers.jsonl",
                                    "report/dllogger.json", "report/mlperf.log"};
  std::vector<NamedPath> files;
  for (const std::string& directory : directories) {
    for (const char* file : kFiles) files.push_back({"the run's", directory + "/" + file});
  }
  return files;
}

void write_report(const std::string& output, const std::string& text, size_t runs) {
  write_file(output, text);
  fmt::print(stderr, "bert report: wrote {}: {} {}, {} bytes\n", output, runs, runs == 1 ? "run" : "runs", text.size());
}

}  // namespace

int report_command(int argc, char** argv) {
  CLI::App app(
      "Reports on runs from the files in their directories: curves, evaluations, answers, norms, checkpoints and "
      "processes; several runs over each other, with the differences of their configurations. html is one page with "
      "nothing from elsewhere; markdown is for a pull request.",
      "bert report");
  app.footer(
      "Example: bert report runs/first --output report.html\n"
      "         bert report runs/first runs/second --format markdown");
  std::vector<std::string> directories;
  std::string output, format = "html";
  app.add_option("RUN", directories, "run directories")->required();
  app.add_option("--output", output, "file to write; markdown without it goes to standard output");
  app.add_option("--format", format, "form of the report")
      ->check(CLI::IsMember({"html", "markdown"}))
      ->capture_default_str();
  if (!parse_command_line(app, argc, argv)) return kOk;
  if (output.empty() && format == "html") throw UsageError("a page needs a file: add --output report.html");
  for (const std::string& directory : directories) check_run_directory(directory);
  check_outputs({{"--output", output}}, files_of(directories));
  std::vector<ReportedRun> runs;
  runs.reserve(directories.size());
  for (const std::string& directory : directories) runs.push_back(report_run(directory));
  const std::string text = format == "html" ? report_page(report_data(runs)) : report_markdown(runs);
  if (output.empty()) {
    fmt::print("{}", text);
  } else {
    write_report(output, text, runs.size());
  }
  return kOk;
}

}  // namespace bert
