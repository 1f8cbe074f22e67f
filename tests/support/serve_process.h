// `bert serve` in another process, and requests for it.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "data/io/files.h"
#include "tests/http/raw_client.h"
#include "tests/places.h"
#include "tests/testing.h"

namespace bert::testing {

/// `bert serve ARGUMENTS...` as a process, which is killed with its scope.
class ServeProcess {
 public:
  ServeProcess(const TemporaryDirectory& directory, std::vector<std::string> arguments)
      : out_(directory.path("out")), err_(directory.path("err")) {
    arguments.insert(arguments.begin(), {"bert", "serve"});
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    std::filesystem::remove(out_);  // of an earlier process
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDOUT_FILENO);
      dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      execv(BERT_EXECUTABLE, argv.data());
      _exit(127);
    }
  }
  ~ServeProcess() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  /// The port of the first line; 0 if the process has ended without one.
  int64_t port() {
    for (int i = 0; i < 3000 && code_ < 0; ++i) {
      const std::string line = std::filesystem::exists(out_) ? read_file(out_) : "";
      const size_t end = line.find('\n'), colon = line.rfind(':', end);
      if (end != std::string::npos) return std::stoll(line.substr(colon + 1));
      look(WNOHANG);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return 0;
  }
  void signal(int number) const { kill(pid_, number); }
  /// A variable that the process started with; "" without it.
  [[nodiscard]] std::string variable(const std::string& name) const {
    std::ifstream environment(fmt::format("/proc/{}/environ", pid_));
    for (std::string entry; std::getline(environment, entry, '\0');)
      if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
    return "";
  }
  /// The name that ps and pkill know.
  [[nodiscard]] std::string name() const {
    std::string name;
    std::getline(std::ifstream(fmt::format("/proc/{}/comm", pid_)), name);
    return name;
  }
  /// Memory of the process that no file holds.
  [[nodiscard]] int64_t own_kilobytes() const {
    std::ifstream status(fmt::format("/proc/{}/status", pid_));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8));
    return -1;
  }
  /// The exit code, or 1000 + signal, after the end.
  int code() {
    if (code_ < 0) look(0);
    return code_;
  }
  [[nodiscard]] std::string said() const { return read_file(err_); }

 private:
  void look(int options) {
    int status = 0;
    if (waitpid(pid_, &status, options) != pid_) return;
    pid_ = -1;
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  std::string out_, err_;
  pid_t pid_ = -1;
  int code_ = -1;
};

inline std::string post(const std::string& path, const std::string& body, const std::string& fields = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n" +
         fields + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

using Answered = std::pair<int, std::string>;

/// Status and body of an answer that is not chunked.
inline Answered ask(int64_t port, const std::string& request) {
  RawClient client(port);
  client.send(request);
  const std::string answer = client.answer();
  return {std::atoi(answer.substr(9).c_str()), answer.substr(answer.find("\r\n\r\n") + 4)};
}

}  // namespace bert::testing
