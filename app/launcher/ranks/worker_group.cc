#include "app/launcher/ranks/worker_group.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "app/launcher/settings/job_token.h"
#include "app/net/network_interfaces.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/descriptor_limit.h"
#include "app/system/rank_state.h"
#include "data/io/error.h"

namespace bert {
namespace {

/// The steps of the child before it becomes the program.
enum class Step { kStdout, kStderr, kProcessors, kProgram };

struct StepFailure {
  Step step;
  int error;
};

/// Called in the child. Sends the failed step and errno up the pipe, so that the launcher reports the error.
[[noreturn]] void give_up(int error_pipe, Step step) {
  const StepFailure failure{step, errno};
  [[maybe_unused]] const ssize_t written = write(error_pipe, &failure, sizeof failure);
  _exit(127);
}

[[noreturn]] void throw_failure(const StepFailure& failure, const WorkerSpec& spec) {
  const std::string why = std::strerror(failure.error);
  switch (failure.step) {
    case Step::kStdout:
      throw IoError(spec.files.stdout_file + ": cannot be a rank's stdout: " + why);
    case Step::kStderr:
      throw IoError(spec.files.stderr_file + ": cannot be a rank's stderr: " + why);
    case Step::kProcessors:
      throw IoError("a rank cannot be bound to the processors that --numa-binding gives it: " + why);
    case Step::kProgram:
      break;
  }
  throw InputMissing(spec.command.front() + ": cannot be run: " + why);
}

void redirect(const std::string& path, int pipe_end, int stream, int error_pipe) {
  if (path.empty() && pipe_end < 0) return;
  const int file = path.empty() ? pipe_end : open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0 || dup2(file, stream) < 0) give_up(error_pipe, stream == STDOUT_FILENO ? Step::kStdout : Step::kStderr);
}

void bind_to(const std::set<int>& processors, int error_pipe) {
  if (processors.empty()) return;
  const auto count = static_cast<size_t>(*processors.rbegin()) + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  const size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const int processor : processors) CPU_SET_S(static_cast<size_t>(processor), bytes, set);
  if (sched_setaffinity(0, bytes, set) != 0) give_up(error_pipe, Step::kProcessors);
}

[[noreturn]] void become(const WorkerSpec& spec, char** arguments, const rlimit& descriptors, pid_t parent,
                         int error_pipe) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kInternal);  // the launcher died before prctl
  setsid();
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < SIGRTMIN; ++number) sigaction(number, &defaults, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  redirect(spec.files.stdout_file, spec.files.stdout_pipe, STDOUT_FILENO, error_pipe);
  redirect(spec.files.stderr_file, spec.files.stderr_pipe, STDERR_FILENO, error_pipe);
  bind_to(spec.processors, error_pipe);
  setrlimit(RLIMIT_NOFILE, &descriptors);
  // Closes the descriptors that bertrun has inherited. torchrun's ranks have none of them either.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const char* secret : {kTokenVariable, kTokenFileVariable}) unsetenv(secret);
  // These variables belong to an outer bertrun.
  for (const char* others : {kRankStateVariable, kLocalAddressVariable}) unsetenv(others);
  if (spec.state >= 0 && fcntl(spec.state, F_SETFD, 0) == 0)
    setenv(kRankStateVariable, ("/proc/self/fd/" + std::to_string(spec.state)).c_str(), 1);
  for (const auto& [name, value] : spec.environment) setenv(name.c_str(), value.c_str(), 1);
  execvp(arguments[0], arguments);
  give_up(error_pipe, Step::kProgram);
}

}  // namespace

int exit_code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

WorkerGroup::WorkerGroup(ProcessGuard& guard) : guard_(guard) {
  getrlimit(RLIMIT_NOFILE, &descriptors_);
  raise_descriptor_limit();
}

void WorkerGroup::start(const WorkerSpec& spec, int64_t local_rank) {
  if (running_.empty()) stopping_ = false, sent_.clear();
  std::vector<char*> arguments;
  for (const std::string& argument : spec.command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) throw IoError(std::string("pipe: ") + std::strerror(errno));
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) become(spec, arguments.data(), descriptors_, parent, error_pipe[1]);
  const int fork_error = errno;
  close(error_pipe[1]);
  StepFailure failure{};
  const bool failed = pid < 0 || read(error_pipe[0], &failure, sizeof failure) == sizeof failure;
  close(error_pipe[0]);
  if (pid < 0) throw ResourceError(std::string("cannot start a process: ") + std::strerror(fork_error));
  if (failed) {
    waitpid(pid, nullptr, 0);
    throw_failure(failure, spec);
  }
  running_[pid] = local_rank;
  guard_.add(pid);
}

void WorkerGroup::signal_all(int number) {
  sent_.insert(number);
  for (const auto& [pid, rank] : running_) kill(-pid, number);  // the groups exist: start() has waited for setsid
}

std::vector<RunningWorker> WorkerGroup::suspended() const {
  std::vector<RunningWorker> result;
  for (const auto& [pid, rank] : running_) {
    siginfo_t stopped{};
    if (waitid(P_PID, static_cast<id_t>(pid), &stopped, WSTOPPED | WNOHANG | WNOWAIT) == 0 && stopped.si_pid == pid)
      result.push_back({rank, pid});
  }
  return result;
}

void WorkerGroup::kill_one(pid_t pid) {
  sent_.insert(SIGKILL);
  kill(-pid, SIGKILL);
}

std::vector<WorkerExit> WorkerGroup::reap() {
  std::vector<WorkerExit> result;
  for (auto at = running_.begin(); at != running_.end();) {
    const auto [pid, rank] = *at;
    siginfo_t ended{};
    // First only looks (WNOWAIT). The zombie keeps its number, which is also the number of its group, so no other
    // process can take the number meanwhile.
    if (waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) {
      ++at;
      continue;
    }
    const bool success = ended.si_code == CLD_EXITED && ended.si_status == 0;
    if (stopping_ || !success) kill(-pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    result.push_back({rank, pid, status, stopping_ && WIFSIGNALED(status) && sent_.contains(WTERMSIG(status))});
    guard_.remove(pid);
    at = running_.erase(at);
  }
  return result;
}

void WorkerGroup::kill_all() {
  begin_stop();
  signal_all(SIGKILL);
  while (!running_.empty()) {
    const pid_t first = running_.begin()->first;
    siginfo_t ended{};
    waitid(P_PID, static_cast<id_t>(first), &ended, WEXITED | WNOWAIT);
    reap();
  }
}

}  // namespace bert
