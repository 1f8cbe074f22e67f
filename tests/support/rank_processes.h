// Ranks as processes: a TestProgram runs once for each rank, with the environment that a launcher sets.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/test_program.h"

namespace bert::testing {

using Environment = std::map<std::string, std::string>;

inline std::string report_of(pid_t pid) {
  return (std::filesystem::temp_directory_path() / ("bert-test-rank-" + std::to_string(pid))).string();
}

/// Starts the program as rank `rank` of `size`, with MASTER_ADDR 127.0.0.1 and the variables in `more`.
inline pid_t start_rank(const TestProgram& program, int rank, int size, const Environment& more) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("LOCAL_RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(size).c_str(), 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv(TestProgram::kVariable, program.name, 1);
  for (const auto& [variable, value] : more) setenv(variable.c_str(), value.c_str(), 1);
  execl("/proc/self/exe", "rank", "--out", report_of(getpid()).c_str(), nullptr);
  _exit(127);
}

/// Waits for a rank. Returns its exit code, or 1000 + signal. Prints the failed assertions of the rank.
inline int wait_for(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  std::ifstream report(report_of(pid));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) {
    std::ostringstream text;  // std::cout would fail from now on if the report is empty
    text << report.rdbuf();
    std::cout << text.str();
  }
  std::filesystem::remove(report_of(pid));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// Runs all ranks. Returns their exit codes.
inline std::vector<int> run_ranks(const TestProgram& program, int size, const Environment& more) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) pids.push_back(start_rank(program, rank, size, more));
  std::vector<int> codes;
  for (const pid_t pid : pids) codes.push_back(wait_for(pid));
  return codes;
}

/// The processes of that name whose parent is `parent`: the ranks of a bertrun.
inline std::vector<pid_t> children_named(const std::string& name, pid_t parent) {
  std::vector<pid_t> result;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = entry.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string id, command, state;
    pid_t of = 0;
    file >> id >> command >> state >> of;
    if (file && of == parent && command == "(" + name + ")") result.push_back(std::stoi(pid));
  }
  return result;
}

/// The value of a variable that run_ranks has set.
inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace bert::testing
