// Runs `bert pretrain` and `bert finetune` in a separate process, as a user would.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <type_traits>

#include "app/config/finetune_config.h"
#include "app/config/pretrain_config.h"

namespace bert::testing {

/// Starts `bert pretrain`, or `bert finetune` by the type of `config`, on `ranks` processes, with BERT_FAIL_POINT if `fail_point` is not empty. `prepare` runs in
/// the new process first.
template <class Config>
pid_t start(const Config& config, const std::string& fail_point = "", int ranks = 1,
            const std::function<void()>& prepare = {}) {
  const char* const verb = std::is_same_v<Config, FinetuneConfig> ? "finetune" : "pretrain";
  const std::string file = config.run_directory + ".json";
  std::ofstream(file) << to_json(config);
  const pid_t pid = fork();
  if (pid == 0) {
    if (prepare) prepare();
    if (!fail_point.empty()) setenv("BERT_FAIL_POINT", fail_point.c_str(), 1);
    if (ranks > 1) {
      execl(BERTRUN_EXECUTABLE, "bertrun", "--standalone", "--nproc-per-node", std::to_string(ranks).c_str(), "bert",
            verb, file.c_str(), nullptr);
    }
    execl(BERT_EXECUTABLE, "bert", verb, file.c_str(), nullptr);
    _exit(127);
  }
  return pid;
}

/// Waits for the process. Returns its exit code, or 1000 + signal.
inline int result_of(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

template <class Config>
int run_in_child(const Config& config, const std::string& fail_point = "") {
  return result_of(start(config, fail_point));
}

}  // namespace bert::testing
