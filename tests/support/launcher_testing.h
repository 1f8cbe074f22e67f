// Shared code of the launcher's tests: a bertrun in a child process, and checks of its results. Include this file last,
// in place of tests/testing.h.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/launcher/launcher.h"
#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "tests/testing.h"

namespace bert::testing {

/// A bertrun in a child process, so that the test keeps its signal mask and children. Its stdout and stderr go to
/// files. `first` runs in that process first. `executable`: path of a bertrun to execute; else the child runs the
/// launcher's code of this test.
class Launcher {
 public:
  explicit Launcher(
      std::vector<std::string> arguments, const std::function<void()>& first = [] {},
      const std::string& executable = "") {
    arguments.insert(arguments.begin(), "bertrun");
    for (const char* name : {"stdout", "stderr"}) std::ofstream(directory_.path(name)).flush();
    std::cout.flush();  // Catch2's earlier output does not belong to bertrun
    pid_ = fork();
    if (pid_ != 0) return;
    first();
    for (const auto& [name, stream] : {std::pair{"stdout", 1}, std::pair{"stderr", 2}})
      dup2(creat(directory_.path(name).c_str(), 0600), stream);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    if (!executable.empty()) {
      argv.push_back(nullptr);
      execv(executable.c_str(), argv.data());
      _exit(127);
    }
    _exit(guarded("bertrun", [&] { return launch_command(static_cast<int>(argv.size()), argv.data()); }));
  }
  ~Launcher() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait();
  }
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  /// Waits for the exit. Returns the exit code, or 1000 + n if signal n killed the process.
  int wait() {
    collect(0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  /// True if the process has ended. Does not wait.
  bool ended() {
    collect(WNOHANG);
    return pid_ == 0;
  }
  void signal(int number) const { kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string out() const { return read_file(directory_.path("stdout")); }
  [[nodiscard]] std::string err() const { return read_file(directory_.path("stderr")); }

 private:
  void collect(int options) {
    if (pid_ > 0 && waitpid(pid_, &status_, options) == pid_) pid_ = 0;
  }

  TemporaryDirectory directory_;
  pid_t pid_ = 0;
  int status_ = 0;
};

inline std::vector<std::string> shell(std::vector<std::string> options, const std::string& script) {
  options.insert(options.begin(), "--standalone");
  options.insert(options.end(), {"sh", "-c", script});
  return options;
}

inline int run(const std::vector<std::string>& arguments) { return Launcher(arguments).wait(); }

/// Waits until a further signal counts as a new request.
inline void wait_for_another_wish() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

/// Waits until the condition holds, at most ten seconds. Returns false after that time.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return condition();
}

/// True if the process runs. A zombie does not.
inline bool alive(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && text[name_end + 2] != 'Z';
}

inline std::vector<pid_t> pids_in(const std::string& path) {
  std::ifstream file(path);
  return {std::istream_iterator<pid_t>(file), {}};
}

inline std::string only_file(const std::string& directory, const std::string& name) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.path().string().ends_with(name)) return entry.path();
  }
  return "";
}

inline nlohmann::json json_of(const std::string& path) { return nlohmann::json::parse(read_file(path)); }

}  // namespace bert::testing
