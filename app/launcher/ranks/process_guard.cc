#include "app/launcher/ranks/process_guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "app/system/console.h"
#include "app/system/crypto.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr int kPasses = 5;  // a process that starts during one pass is found by the next pass
constexpr useconds_t kPause_us = 20'000;

struct Message {
  char what;  // '+' and '-': a process group starts or ends; 'q': the launcher ends as it should
  pid_t group;
};

/// Reads the launcher's messages until the pipe closes. Returns true if the launcher ended as it should.
bool follow(int pipe, std::set<pid_t>& groups) {
  Message message{};
  for (;;) {
    const ssize_t got = read(pipe, &message, sizeof message);
    if (got < 0 && errno == EINTR) continue;
    if (got != sizeof message) return false;
    if (message.what == 'q') return true;
    if (message.what == '+') groups.insert(message.group);
    if (message.what == '-') groups.erase(message.group);
  }
}

[[noreturn]] void guard(int pipe, const std::string& mark) {
  setsid();
  prctl(PR_SET_NAME, "bertrun-guard");
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  // Closes everything but the pipe: the launcher's streams and sockets must close with the launcher.
  if (pipe != 0) dup2(pipe, 0);
  close_range(1, ~0U, 0);
  std::set<pid_t> groups;
  if (follow(0, groups)) _exit(0);
  for (int pass = 0; pass < kPasses; ++pass) {
    for (const pid_t group : groups) kill(-group, SIGKILL);
    if (kill_marked(mark) == 0 && pass > 0) break;
    usleep(kPause_us);
  }
  _exit(0);
}

}  // namespace

std::string make_mark() {
  const char* outer = std::getenv(kMarkVariable);
  return (outer != nullptr ? std::string(outer) + "/" : "") + to_hexadecimal(random_bytes(16));
}

int kill_marked(const std::string& mark) {
  const std::string entry_start = std::string(kMarkVariable) + "=" + mark;
  int killed = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t pid = std::stoi(name);
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    const std::string environment{std::istreambuf_iterator<char>(file), {}};
    const size_t at = environment.find(entry_start);
    const bool whole = at != std::string::npos && (at == 0 || environment[at - 1] == '\0');
    if (whole && pid != getpid() && kill(pid, SIGKILL) == 0) ++killed;
  }
  return killed;
}

ProcessGuard::ProcessGuard(const std::string& mark) : mark_(mark) { start(); }

void ProcessGuard::start() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw IoError(std::string("pipe: ") + std::strerror(errno));
  const Descriptor read_end(ends[0]);
  pipe_ = Descriptor(ends[1]);
  guard_ = fork();
  if (guard_ == 0) {
    pipe_.reset();
    guard(read_end.get(), mark_);
  }
  if (guard_ < 0) throw ResourceError(std::string("cannot start a process: ") + std::strerror(errno));
  for (const pid_t group : groups_) tell('+', group);
}

ProcessGuard::~ProcessGuard() {
  tell('q', 0);
  pipe_.reset();
  waitpid(guard_, nullptr, 0);
}

void ProcessGuard::add(pid_t group) {
  groups_.insert(group);
  tell('+', group);
}

void ProcessGuard::remove(pid_t group) {
  groups_.erase(group);
  tell('-', group);
}

void ProcessGuard::child_ended() {
  if (waitpid(guard_, nullptr, WNOHANG) != guard_) return;
  say("note: the guard process " + std::to_string(guard_) + " has died; starting another");
  start();
}

void ProcessGuard::tell(char what, pid_t group) const {
  const Message message{what, group};
  // If the guard is gone, the launcher goes on.
  [[maybe_unused]] const ssize_t written = write(pipe_.get(), &message, sizeof message);
}

}  // namespace bert
