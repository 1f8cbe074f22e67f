#include "app/launcher.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <thread>

#include "app/command_line.h"
#include "data/error.h"

namespace bert {
namespace {

using Clock = std::chrono::steady_clock;

int64_t processes_of(const std::string& text) {
  if (text == "cpu" || text == "auto") return std::max(1U, std::thread::hardware_concurrency());
  try {
    size_t used = 0;
    const int64_t count = std::stoll(text, &used);
    if (used == text.size() && count >= 1) return count;
  } catch (const std::exception&) {  // reported below with every other bad value
  }
  throw UsageError("--nproc-per-node " + text + ": expected a number from 1, cpu or auto");
}

int64_t free_port() {
  const int socket_descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const bool bound = socket_descriptor >= 0 &&
                     bind(socket_descriptor, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(socket_descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  if (socket_descriptor >= 0) close(socket_descriptor);
  if (!bound) throw IoError(std::string("no free port on 127.0.0.1: ") + std::strerror(error));
  return ntohs(address.sin_port);
}

/// The program to execute: beside bertrun first, then PATH (execvp's own search); a .py file runs under python3.
std::vector<std::string> resolve_command(const LaunchConfig& config) {
  std::vector<std::string> command = config.command;
  const std::filesystem::path program = command.front();
  if (!config.no_python && program.extension() == ".py") {
    command.insert(command.begin(), {"python3", "-u"});
  } else if (!program.has_parent_path()) {
    const auto beside = std::filesystem::read_symlink("/proc/self/exe").parent_path() / program;
    if (access(beside.c_str(), X_OK) == 0) command.front() = beside.string();
  }
  return command;
}

std::map<std::string, std::string> worker_environment(const LaunchConfig& config, int64_t local_rank) {
  const std::string world = std::to_string(config.nnodes * config.nproc_per_node);
  const std::string rank = std::to_string(config.node_rank * config.nproc_per_node + local_rank);
  std::map<std::string, std::string> result = {
      {"LOCAL_RANK", std::to_string(local_rank)},
      {"RANK", rank},
      {"WORLD_SIZE", world},
      {"LOCAL_WORLD_SIZE", std::to_string(config.nproc_per_node)},
      {"GROUP_RANK", std::to_string(config.node_rank)},
      {"GROUP_WORLD_SIZE", std::to_string(config.nnodes)},
      {"ROLE_RANK", rank},
      {"ROLE_WORLD_SIZE", world},
      {"ROLE_NAME", "default"},
      {"MASTER_ADDR", config.master_addr},
      {"MASTER_PORT", std::to_string(config.master_port)},
      {"TORCHELASTIC_RESTART_COUNT", "0"},
      {"TORCHELASTIC_MAX_RESTARTS", "0"},
      {"TORCHELASTIC_RUN_ID", "none"},
      {"TORCHELASTIC_USE_AGENT_STORE", "False"},
      {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
  };
  if (config.nproc_per_node > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) result["OMP_NUM_THREADS"] = "1";
  return result;
}

/// Starts one rank. The child gets SIGKILL when this process dies. A failed exec comes back through a pipe, so that a
/// program that is not there is this process's error. Throws InputMissing, IoError.
pid_t start_rank(const std::vector<std::string>& command, const std::map<std::string, std::string>& environment) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  int error_pipe[2];
  if (pipe2(error_pipe, O_CLOEXEC) != 0) throw IoError(std::string("pipe: ") + std::strerror(errno));
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) throw IoError(std::string("fork: ") + std::strerror(errno));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kInternal);  // the parent died before prctl
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execvp(arguments[0], arguments.data());
    const int error = errno;
    [[maybe_unused]] const ssize_t written = write(error_pipe[1], &error, sizeof error);
    _exit(127);
  }
  close(error_pipe[1]);
  int error = 0;
  const bool failed = read(error_pipe[0], &error, sizeof error) == sizeof error;
  close(error_pipe[0]);
  if (failed) {
    waitpid(pid, nullptr, 0);
    throw InputMissing(command.front() + ": cannot be run: " + std::strerror(error));
  }
  return pid;
}

int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

/// The running ranks; whatever is left is killed when it goes out of scope.
class Ranks {
 public:
  ~Ranks() { signal_all(SIGKILL); }
  void add(pid_t pid, int64_t local_rank) { running_[pid] = local_rank; }
  [[nodiscard]] bool empty() const { return running_.empty(); }
  void signal_all(int number) const {
    for (const auto& [pid, rank] : running_) kill(pid, number);
  }
  /// Reaps every rank that has ended; returns the first failure among them, and names it unless all are being stopped.
  std::optional<int> reap(const LaunchConfig& config, bool stopping) {
    std::optional<int> failure;
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto found = running_.find(pid);
      if (found == running_.end()) continue;
      const int code = code_of(status);
      if (code != 0 && !failure) {
        failure = code;
        if (!stopping) report(config, found->second, pid, status);
      }
      running_.erase(found);
    }
    return failure;
  }

 private:
  static void report(const LaunchConfig& config, int64_t local_rank, pid_t pid, int status) {
    const int64_t rank = config.node_rank * config.nproc_per_node + local_rank;
    std::fprintf(stderr, "bertrun: rank %ld (local rank %ld, pid %d) %s %d\n", static_cast<long>(rank),
                 static_cast<long>(local_rank), pid, WIFSIGNALED(status) ? "killed by signal" : "ended with exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }

  std::map<pid_t, int64_t> running_;
};

sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1}) sigaddset(&set, number);
  return set;
}

}  // namespace

bool parse_launch_command(int argc, char** argv, LaunchConfig& config) {
  CLI::App app(
      "Starts the ranks of one program on this machine, as torchrun does.\n"
      "Example: bertrun --nproc-per-node 2 bert pretrain configs/quickstart.json\n"
      "A program name without a slash is looked for beside bertrun, then in PATH; a .py file runs under python3.",
      "bertrun");
  app.prefix_command();
  std::string processes = "1";
  app.add_option("--nnodes", config.nnodes, "machines; start bertrun on each with its --node-rank")
      ->check(CLI::PositiveNumber);
  app.add_option("--nproc-per-node,--nproc_per_node", processes,
                 "ranks on this machine: a number, cpu or auto (one per core)");
  app.add_option("--node-rank,--node_rank", config.node_rank, "number of this machine, from 0")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--master-addr,--master_addr", config.master_addr, "address of machine 0");
  app.add_option("--master-port,--master_port", config.master_port, "port on machine 0")->check(CLI::Range(1, 65535));
  app.add_flag("--standalone", config.standalone, "one machine, a free port");
  app.add_flag("--no-python,--no_python", config.no_python, "run a .py file as a program of its own");
  if (!parse_command_line(app, argc, argv)) return false;
  config.command = app.remaining();
  if (!config.command.empty() && config.command.front() == "--") config.command.erase(config.command.begin());
  if (config.command.empty()) throw UsageError("no program to run; see bertrun --help");
  if (config.command.front().starts_with("-"))
    throw UsageError("unknown flag " + config.command.front() + "; see bertrun --help");
  config.nproc_per_node = processes_of(processes);
  if (config.node_rank >= config.nnodes) {
    throw UsageError("--node-rank " + std::to_string(config.node_rank) + ": expected less than --nnodes " +
                     std::to_string(config.nnodes));
  }
  if (config.standalone && config.nnodes != 1) throw UsageError("--standalone is for one machine; leave --nnodes out");
  if (const char* seconds = std::getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"))
    config.shutdown_timeout_seconds = std::atof(seconds);
  return true;
}

int launch(const LaunchConfig& given) {
  LaunchConfig config = given;
  if (config.standalone) config.master_port = free_port();
  const std::vector<std::string> command = resolve_command(config);
  const sigset_t set = handled_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  Ranks ranks;
  for (int64_t local_rank = 0; local_rank < config.nproc_per_node; ++local_rank) {
    ranks.add(start_rank(command, worker_environment(config, local_rank)), local_rank);
  }
  int result = 0;
  std::optional<Clock::time_point> deadline;
  const auto stop = [&](int number) {
    ranks.signal_all(number);
    if (!deadline)
      deadline = Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(1000 * config.shutdown_timeout_seconds));
  };
  while (!ranks.empty()) {
    const timespec poll{0, 100'000'000};
    const int number = sigtimedwait(&set, nullptr, &poll);
    if (number == SIGUSR1) ranks.signal_all(SIGUSR1);  // "save and stop", to be answered with 75
    if (number == SIGTERM || number == SIGINT || number == SIGHUP || number == SIGQUIT) {
      stop(number);
      if (result == 0) result = 128 + number;
    }
    if (const auto failure = ranks.reap(config, deadline.has_value())) {
      // A rank that saved because of our signal says 75: that is the answer, not 128 + n.
      if (result == 0 || (result > 128 && *failure == kPreempted)) result = *failure;
      stop(SIGTERM);
    }
    if (deadline && Clock::now() > *deadline) ranks.signal_all(SIGKILL);
  }
  return result;
}

}  // namespace bert
