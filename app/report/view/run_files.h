// A run directory as its readers find it: the files that a run leaves for people and programs.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace bert {

/// An object of a file of JSON lines, and its place for messages: "FILE:LINE".
struct JsonLine {
  nlohmann::json value;
  std::string where;
};

/// The text of each line of `text`, which is the content of the file `name`. A last line without a line end is left
/// out: its writer was interrupted. Throws DataError with file and line for a line that is no JSON object.
std::vector<JsonLine> parse_json_lines(const std::string& text, const std::string& name);

/// The content of a run directory, without its checkpoints. A file that is absent gives null, or no lines.
struct RunFiles {         // NOLINT(bugprone-exception-escape): json's move constructor throws for a broken object alone
  std::string name;       // the last part of the path, for legends
  std::string directory;  // as it was named
  nlohmann::json config, summary, profile;
  std::vector<JsonLine> metrics, attempts, layers, answers;
};

/// Throws InputMissing if `directory` is no run directory: it has neither config.json nor metrics.jsonl.
void check_run_directory(const std::string& directory);

/// Reads a run directory. Throws InputMissing if it is none, or if metrics.jsonl has no line yet; DataError with file
/// and line; IoError.
RunFiles read_run(const std::string& directory);

/// The member `key` of `object` if it is a number, otherwise NaN.
double number_or_nan(const nlohmann::json& object, const char* key);

/// The time of a line of metrics.jsonl. NaN stands for a member that the line lacks.
struct LineTime {
  double time, elapsed_seconds;  // since 1970; since the begin of its process
};
LineTime time_of(const nlohmann::json& line);

/// True if the line at `line` is of a later process than the line at `before`, the one before it: the process began
/// after `before`, and has run for a shorter time. A clock that is set anew does not look like another process.
bool is_of_later_process(const LineTime& line, const LineTime& before);

/// The integer at the JSON pointer `pointer` of a configuration, otherwise 0.
int64_t setting(const nlohmann::json& config, const std::string& pointer);

/// The last step of the run: stop_at_step, else max_steps of config.json; 0 if neither says it.
int64_t last_step_of(const nlohmann::json& config);

}  // namespace bert
