// What the launcher's tests share: a bertrun in a child process, and looks at what it leaves behind. Include it in
// place of tests/testing.h, last.
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

/// A bertrun in a process of its own, so that signal masks and children stay out of the tests. Its stderr and stdout go
/// to files. `first` is run in that process first. `executable`: that bertrun in place of this program's own code;
/// ranks of `bert` need it, as it finds the store that it serves them beside itself.
class Launcher {
 public:
  explicit Launcher(
      std::vector<std::string> arguments, const std::function<void()>& first = [] {},
      const std::string& executable = "") {
    arguments.insert(arguments.begin(), "bertrun");
    for (const char* name : {"stdout", "stderr"}) std::ofstream(directory_.path(name)).flush();
    std::cout.flush();  // what Catch2 has written so far is not bertrun's
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

  /// The exit code, 1000 + n when it was killed by signal n.
  int wait() {
    collect(0);
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : 1000 + WTERMSIG(status_);
  }
  /// It has ended; does not wait.
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

/// After so long another signal is no longer the same wish.
inline void wait_for_another_wish() { std::this_thread::sleep_for(std::chrono::milliseconds(2100)); }

/// Waits until the condition holds, at most ten seconds.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  return condition();
}

/// Whether the process runs; a zombie that nobody has reaped yet does not.
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
