// Runs on the device, as a user would start them, and what their files say. Include this file last, in place of
// tests/testing.h.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "data/io/files.h"
#include "tests/testing.h"

namespace bert::testing {

using Variables = std::map<std::string, std::string>;

/// A program of the device's, "bert" or "bertrun", in a process of its own. It is killed at the end of the scope.
class Twin {
 public:
  Twin(const std::string& name, std::vector<std::string> arguments, const Variables& variables = {}) {
    const std::string program = std::string(BERT_NULL_DEVICE) + "/bin/" + name;
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::cout.flush();  // Catch2's earlier output does not belong to the program
    pid_ = fork();
    if (pid_ != 0) return;
    setenv("OMP_NUM_THREADS", "1", 1);
    setenv("TMPDIR", directory_.path().c_str(), 1);  // bertrun leaves the error files of ranks there
    for (const auto& [variable, value] : variables) setenv(variable.c_str(), value.c_str(), 1);
    for (const auto& [file, stream] : {std::pair{"out", STDOUT_FILENO}, std::pair{"err", STDERR_FILENO}})
      dup2(creat(directory_.path(file).c_str(), 0600), stream);
    execv(program.c_str(), argv.data());
    _exit(127);
  }
  ~Twin() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait();
  }
  Twin(const Twin&) = delete;
  Twin& operator=(const Twin&) = delete;

  /// Waits for the end. Returns the exit code, or 1000 + n if signal n killed the process.
  int wait() {
    collect(0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  bool ended() {
    collect(WNOHANG);
    return pid_ == 0;
  }
  /// Waits until the condition holds. Returns false if the program has ended before, or after a minute.
  bool until(const std::function<bool()>& condition) {
    constexpr int kPauses = 3000;
    for (int i = 0; i < kPauses && !condition(); ++i) {
      if (ended()) return condition();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return condition();
  }
  void signal(int number) const { kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string out() const { return text("out"); }
  [[nodiscard]] std::string err() const { return text("err"); }

 private:
  [[nodiscard]] std::string text(const std::string& file) const {
    return std::filesystem::exists(directory_.path(file)) ? read_file(directory_.path(file)) : "";
  }
  void collect(int options) {
    if (pid_ > 0 && waitpid(pid_, &status_, options) == pid_) pid_ = 0;
  }

  TemporaryDirectory directory_;
  pid_t pid_ = 0;
  int status_ = 0;
};

/// Writes `config` to a file beside its run directory, and returns its path.
template <class Config>
std::string file_of(const Config& config) {
  const std::string path = config.run_directory + ".json";
  std::ofstream(path) << to_json(config);
  return path;
}

inline std::vector<nlohmann::json> json_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

inline std::vector<nlohmann::json> metrics_of(const std::string& run_directory) {
  const std::string path = run_directory + "/metrics.jsonl";
  return std::filesystem::exists(path) ? json_lines(read_file(path)) : std::vector<nlohmann::json>();
}

/// The first difference between two values of JSON: numbers may differ by the tolerance, and all else must be equal.
/// Fields of times and speeds are left out. "" if there is none.
inline std::string difference(const nlohmann::json& got, const nlohmann::json& want, Tolerance limit,
                              const std::string& place = "") {
  static const std::set<std::string> kTimes = {
      "time", "elapsed_seconds",   "sequences_per_second", "tokens_per_second",
      "mfu",  "data_wait_seconds", "data_wait_share",      "exposed_communication_ms"};
  const auto both = [&] { return place + ": " + got.dump() + ", not " + want.dump(); };
  if (got.is_number() && want.is_number()) {
    const auto one = got.get<double>(), other = want.get<double>();
    return std::abs(one - other) <= limit.absolute + limit.relative * std::abs(other) ? "" : both();
  }
  if (got.type() != want.type() || got.size() != want.size()) return both();
  if (!got.is_structured()) return got == want ? "" : both();
  for (const auto& item : want.items()) {
    if (got.is_object() && kTimes.contains(item.key())) continue;
    if (got.is_object() && !got.contains(item.key())) return both();
    const nlohmann::json& part = got.is_object() ? got.at(item.key()) : got.at(std::stoul(item.key()));
    std::string found = difference(part, item.value(), limit, place + "/" + item.key());
    if (!found.empty()) return found;
  }
  return "";
}

/// Limits for runs in fp32 on two devices: the losses, and what the trained models answer. Adam divides gradients by
/// their size, so that it makes more of the rounding of small ones.
inline constexpr Tolerance kLosses{1e-8, 1e-5}, kAnswers{1e-4, 1e-3};

/// The first difference of two runs' metrics.jsonl, which must have lines: of evaluations within kAnswers at least, and
/// of all others within `limit`.
inline std::string difference_of_runs(const std::string& got, const std::string& want, Tolerance limit) {
  const std::vector<nlohmann::json> lines = metrics_of(got), wanted = metrics_of(want);
  if (lines.empty() || lines.size() != wanted.size())
    return std::to_string(lines.size()) + " lines, not " + std::to_string(wanted.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    const bool loose = lines[i].contains("evaluation") && limit.relative < kAnswers.relative;
    std::string found = difference(lines[i], wanted[i], loose ? kAnswers : limit, std::to_string(i));
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace bert::testing
