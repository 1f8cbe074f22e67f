#include "app/report/view/run_files.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "app/parse/bounded_json.h"
#include "data/io/error.h"
#include "data/io/files.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostBytes = int64_t{1} << 31;  // of one file; a line of metrics.jsonl has about 600

bool exists(const std::string& path) {
  std::error_code unseen;
  return fs::exists(path, unseen);
}

std::vector<JsonLine> read_json_lines(const std::string& path) {
  if (!exists(path)) return {};
  return parse_json_lines(read_file(path, kMostBytes), path);
}

nlohmann::json read_json(const std::string& path) {
  if (!exists(path)) return nullptr;
  nlohmann::json value = parse_bounded_json(read_file(path, kMostBytes), path);
  if (!value.is_object()) throw DataError(path + ": expected a JSON object");
  return value;
}

std::string name_of(const std::string& directory) {
  std::error_code unseen;
  fs::path path = fs::weakly_canonical(directory, unseen);
  if (path.empty()) path = fs::path(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.filename().string();
}

}  // namespace

std::vector<JsonLine> parse_json_lines(const std::string& text, const std::string& name) {
  std::vector<JsonLine> lines;
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string where = fmt::format("{}:{}", name, ++number);
    nlohmann::json value = parse_bounded_json(text.substr(begin, end - begin), where);
    if (!value.is_object()) throw DataError(where + ": expected a JSON object, got " + std::string(value.type_name()));
    lines.push_back({std::move(value), where});
  }
  return lines;
}

void check_run_directory(const std::string& directory) {
  std::error_code unseen;
  if (!fs::exists(directory, unseen)) throw InputMissing(directory + ": no such run directory");
  if (exists(directory + "/config.json") || exists(directory + "/metrics.jsonl")) return;
  throw InputMissing(directory +
                     ": is no run directory: it has neither config.json nor metrics.jsonl; name the run_directory of "
                     "bert pretrain or bert finetune");
}

RunFiles read_run(const std::string& directory) {
  check_run_directory(directory);
  const std::string metrics = directory + "/metrics.jsonl";
  RunFiles run;
  run.name = name_of(directory);
  run.directory = directory;
  run.metrics = read_json_lines(metrics);
  if (run.metrics.empty())
    throw InputMissing(metrics + ": has no line yet; the run writes the first one after log_every steps");
  run.config = read_json(directory + "/config.json");
  run.summary = read_json(directory + "/summary.json");
  run.profile = read_json(directory + "/profile.json");
  run.attempts = read_json_lines(directory + "/attempts.jsonl");
  run.layers = read_json_lines(directory + "/layers.jsonl");
  run.answers = read_json_lines(directory + "/answers.jsonl");
  return run;
}

double number_or_nan(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

LineTime time_of(const nlohmann::json& line) {
  return {.time = number_or_nan(line, "time"), .elapsed_seconds = number_or_nan(line, "elapsed_seconds")};
}

bool is_of_later_process(const LineTime& line, const LineTime& before) {
  return line.time - line.elapsed_seconds > before.time && line.elapsed_seconds < before.elapsed_seconds;
}

int64_t setting(const nlohmann::json& config, const std::string& pointer) {
  const nlohmann::json::json_pointer place(pointer);
  if (!config.is_object() || !config.contains(place) || !config[place].is_number_integer()) return 0;
  return config[place].get<int64_t>();
}

int64_t last_step_of(const nlohmann::json& config) {
  const int64_t stop = setting(config, "/stop_at_step");
  return stop > 0 ? stop : setting(config, "/max_steps");
}

}  // namespace bert
