// Runs `bert pretrain` and `bert finetune` in a separate process, as a user would.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"
#include "data/io/files.h"
#include "tests/places.h"

namespace bert::testing {

/// The circumstances of a process.
struct ProcessOptions {
  std::string fail_point;         // BERT_FAIL_POINT; "": none
  int ranks = 1;                  // processes, under bertrun if there are several
  std::function<void()> prepare;  // runs in the new process first
};

/// Starts `bert ARGUMENTS...`.
inline pid_t start_bert(std::vector<std::string> arguments, const ProcessOptions& options = {}) {
  const char* const program = options.ranks > 1 ? BERTRUN_EXECUTABLE : BERT_EXECUTABLE;
  arguments.insert(arguments.begin(), "bert");
  if (options.ranks > 1) {
    const std::vector<std::string> launcher = {"bertrun", "--standalone", "--nproc-per-node",
                                               std::to_string(options.ranks)};
    arguments.insert(arguments.begin(), launcher.begin(), launcher.end());
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  if (options.prepare) options.prepare();
  if (!options.fail_point.empty()) setenv("BERT_FAIL_POINT", options.fail_point.c_str(), 1);
  execv(program, argv.data());
  _exit(127);
}

/// Writes `config` to a file and starts `bert pretrain`, or `bert finetune` by its type, with the file and `more`.
template <class Config>
pid_t start(const Config& config, const std::string& fail_point = "", int ranks = 1,
            const std::function<void()>& prepare = {}, const std::vector<std::string>& more = {}) {
  const std::string file = config.run_directory + ".json";
  std::ofstream(file) << to_json(config);
  std::vector<std::string> arguments = {std::is_same_v<Config, FinetuneConfig> ? "finetune" : "pretrain", file};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return start_bert(std::move(arguments), {.fail_point = fail_point, .ranks = ranks, .prepare = prepare});
}

/// Waits for the process. Returns its exit code, or 1000 + signal.
inline int result_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Runs `bert pretrain` in a process of its own. Returns its output on standard error; `code` gets its exit code.
inline std::string said(const PretrainConfig& config, int& code, int ranks = 1,
                        const std::function<void()>& prepare = {}) {
  const std::string path = config.run_directory + ".stderr";
  code = result_of(start(config, "", ranks, [&] {
    if (std::freopen(path.c_str(), "w", stderr) == nullptr) _exit(126);
    if (prepare) prepare();
  }));
  return read_file(path);
}

template <class Config>
int run_in_child(const Config& config, const std::string& fail_point = "") {
  return result_of(start(config, fail_point));
}

}  // namespace bert::testing
