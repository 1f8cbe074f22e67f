#include "app/train/log/run_sinks.h"

#include <array>
#include <filesystem>
#include <string>

#include "app/report/dllogger_sink.h"
#include "app/report/jsonl_sink.h"
#include "app/report/mlperf_sink.h"
#include "app/report/prometheus_sink.h"
#include "app/report/tensorboard_sink.h"

namespace bert {
namespace {

struct Format {
  const char* name;  // in config.report
  std::unique_ptr<Sink> (*make)(const std::string& run_directory, int64_t saved);
};
constexpr std::array<Format, 4> kFormats = {{{"jsonl", make_jsonl_sink},
                                             {"tensorboard", make_tensorboard_sink},
                                             {"dllogger", make_dllogger_sink},
                                             {"mlperf", make_mlperf_sink}}};

/// The last part of a directory's path.
std::string last_part(const std::filesystem::path& directory) {
  return (directory.has_filename() ? directory : directory.parent_path()).filename().string();
}

}  // namespace

std::vector<std::unique_ptr<Sink>> make_sinks(const RunConfig& config, int64_t saved) {
  std::vector<std::unique_ptr<Sink>> sinks;
  for (const Format& format : kFormats) {
    if (config.reports(format.name)) sinks.push_back(format.make(config.run_directory, saved));
  }
  if (config.report_port > 0)
    sinks.push_back(make_prometheus_sink(last_part(config.run_directory), config.report_port));
  return sinks;
}

}  // namespace bert
