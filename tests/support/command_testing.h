// Runs verbs in the test's own process, with redirected standard streams.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/system/exit_codes.h"
#include "data/io/files.h"
#include "tests/testing.h"

namespace bert::testing {

/// Replaces one of the process' descriptors until the end of the scope.
class Redirection {
 public:
  Redirection(int descriptor, const std::string& path, int flags) : descriptor_(descriptor), saved_(::dup(descriptor)) {
    std::cout.flush();  // Catch2's earlier output belongs to the old stream
    std::fflush(nullptr);
    const int file = ::open(path.c_str(), flags, 0600);
    ::dup2(file, descriptor);
    ::close(file);
  }
  ~Redirection() {
    std::cout.flush();
    std::fflush(nullptr);
    ::dup2(saved_, descriptor_);
    ::close(saved_);
  }
  Redirection(const Redirection&) = delete;
  Redirection& operator=(const Redirection&) = delete;

 private:
  int descriptor_, saved_;
};

struct CommandResult {
  int code = 0;
  std::string out, err;
};

using Command = int (*)(int, char**);

/// Runs `command` as main.cc would, and returns its result. The first argument is the verb. Standard input is the file
/// `input_path`.
inline CommandResult run_command_from(const std::string& input_path, Command command,
                                      std::vector<std::string> arguments) {
  const TemporaryDirectory directory;
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  CommandResult result;
  {
    const Redirection in(STDIN_FILENO, input_path, O_RDONLY);
    const Redirection out(STDOUT_FILENO, directory.path("out"), O_WRONLY | O_CREAT);
    const Redirection err(STDERR_FILENO, directory.path("err"), O_WRONLY | O_CREAT);
    result.code =
        guarded("bert " + arguments.front(), [&] { return command(static_cast<int>(argv.size()), argv.data()); });
  }
  result.out = read_file(directory.path("out"));
  result.err = read_file(directory.path("err"));
  return result;
}

/// The same with the text `input` on standard input.
inline CommandResult run_command(Command command, const std::vector<std::string>& arguments,
                                 std::string_view input = "") {
  const TemporaryDirectory directory;
  std::ofstream(directory.path("in"), std::ios::binary) << input;
  return run_command_from(directory.path("in"), command, arguments);
}

/// The output of `work` to standard error if standard error is a terminal.
template <class Work>
std::string on_terminal(Work&& work) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0) return "there is no terminal to be had";
  std::string seen;
  {
    std::jthread reader;
    const Redirection err(STDERR_FILENO, ::ptsname(terminal), O_WRONLY | O_NOCTTY);
    reader = std::jthread([&] {  // ends when the other side is closed
      char buffer[4096];
      for (ssize_t got; (got = ::read(terminal, buffer, sizeof buffer)) > 0;)
        seen.append(buffer, static_cast<size_t>(got));
    });
    work();
  }
  ::close(terminal);
  return seen;
}

}  // namespace bert::testing
