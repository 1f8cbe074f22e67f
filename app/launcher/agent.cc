#include "app/launcher/agent.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <vector>

#include "app/exit_codes.h"
#include "app/launcher/console.h"
#include "app/launcher/event_loop.h"
#include "app/launcher/failure.h"
#include "app/launcher/job_link.h"
#include "app/launcher/job_token.h"
#include "app/launcher/process_guard.h"
#include "app/launcher/processors.h"
#include "app/launcher/worker_group.h"
#include "app/launcher/worker_logs.h"
#include "data/error.h"

namespace bert {
namespace {

/// When a rank fails, others fail with it (a broken connection is an exit code of theirs). A death by a signal is the
/// better culprit, and may be seen this much later.
constexpr double kSettle_seconds = 0.05;
constexpr double kSecondSignal_seconds = 0.5;  // to SIGKILL, after a second signal to end
constexpr double kPatience_seconds = 2;        // with a console that nobody reads, after the first

/// The signals that the launcher takes; blocked from construction on.
class Signals {
 public:
  explicit Signals(const std::vector<int>& ending) {
    sigemptyset(&set_);
    for (const int number : {SIGCHLD, SIGUSR1, SIGUSR2}) sigaddset(&set_, number);
    for (const int number : ending) sigaddset(&set_, number);
    sigprocmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    descriptor_ = Descriptor(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_) throw IoError(std::string("signalfd: ") + std::strerror(errno));
  }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// The next signal that has come; 0 when there is none.
  [[nodiscard]] int next() const {
    signalfd_siginfo info{};
    return read(descriptor_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  sigset_t set_{};
  Descriptor descriptor_;
};

/// Also a job of one node takes it out of the environment.
std::string take_token(const RendezvousConfig& rendezvous) {
  if (rendezvous.max_nodes > 1) return job_token(rendezvous);
  forget_token();
  return "";
}

class Agent {
 public:
  explicit Agent(const LaunchConfig& config)
      : config_(config),
        signals_(config.ending_signals),
        token_(take_token(config.rendezvous)),
        logs_(loop_, config),
        guard_(mark_),
        workers_(guard_),
        link_(make_job_link(loop_, config, token_, [this](const JobOrder& order) { obey(order); })) {
    if (!config.numa_binding.empty()) topology_ = machine_topology();
  }

  int run() {
    loop_.watch(signals_.descriptor(), POLLIN, [this](short) { take_signals(); });
    const auto done = [this] { return ended_ && workers_.empty() && link_->finished() && logs_.drained(); };
    while (!done() && !(abandoned_ && workers_.empty())) loop_.run_once();
    return result_;
  }

 private:
  void obey(const JobOrder& order) {
    if (order.kind == JobOrder::kStart) return start(order.assignment);
    if (order.kind == JobOrder::kLeave) {
      result_ = order.exit_code;
      return;
    }
    if (!order.reason.empty()) say(order.reason);
    if (settle_timer_) loop_.cancel(*settle_timer_);
    settle_timer_.reset();
    if (order.kind == JobOrder::kRestart) {
      stop(SIGTERM, order.failed ? config_.failure_grace_seconds : config_.shutdown_timeout_seconds);
      return;
    }
    ended_ = true;
    result_ = order.exit_code;
    ended_by_signal_ = order.signal != 0;
    if (ended_by_signal_) {
      stop(order.signal, config_.shutdown_timeout_seconds);
    } else if (order.exit_code == kPreempted) {
      stop(0, config_.shutdown_timeout_seconds);  // the others are saving too
    } else {
      stop(SIGTERM, config_.failure_grace_seconds);
    }
  }

  void start(const Assignment& assignment) {
    if (ended_) return;
    assignment_ = assignment;
    failures_.clear();
    error_files_.clear();
    stopping_ = succeeded_ = false;
    int64_t rank = 0;
    try {
      const std::vector<WorkerFiles> files = logs_.start_attempt(assignment);
      const StoreAddress store = link_->open_round(assignment);
      for (; rank < config_.nproc_per_node; ++rank) {
        WorkerSpec spec;
        spec.files = files[static_cast<size_t>(rank)];
        error_files_.push_back(spec.files.error_file);
        spec.command = worker_command(config_, rank);
        spec.environment = worker_environment(config_, assignment, store, rank, spec.files.error_file);
        spec.environment[kMarkVariable] = mark_;
        if (!config_.numa_binding.empty())
          spec.processors = processors_of_rank(topology_, config_.numa_binding, rank, config_.nproc_per_node);
        workers_.start(spec, rank);
      }
      logs_.started();
    } catch (...) {
      Failure failure;  // without a pid: it was never started, and a restart would not mend it
      std::string type;
      failure.exit_code = exit_code_of_current_exception(type, failure.message);
      failure.rank = assignment.first_rank + rank;
      failure.local_rank = rank;
      failure.host = config_.rendezvous.local_addr;
      link_->failed(assignment.round, failure);
    }
  }

  /// Sends `signal` (0: none) to the ranks, and SIGKILL when the time is up.
  void stop(int signal, double seconds) {
    stopping_ = true;
    if (workers_.empty()) return workers_gone();
    workers_.begin_stop();
    if (signal != 0) workers_.signal_all(signal);
    if (kill_timer_) loop_.cancel(*kill_timer_);
    kill_timer_ = loop_.after(seconds, [this] {
      kill_timer_.reset();
      workers_.signal_all(SIGKILL);
    });
  }

  void workers_gone() {
    if (kill_timer_) loop_.cancel(*kill_timer_);
    kill_timer_.reset();
    logs_.finish_attempt();
    if (!succeeded_) kill_marked(mark_);
    link_->stopped(assignment_.round, result_);
  }

  void take_signals() {
    while (const int number = signals_.next()) {
      if (number == SIGCHLD) continue;
      const auto& ending = config_.ending_signals;
      if (std::find(ending.begin(), ending.end(), number) == ending.end()) {
        workers_.signal_all(number);  // SIGUSR1, SIGUSR2: for the ranks, which may answer with 75
      } else if (!interrupted_) {
        interrupted_ = true;
        logs_.set_patience(kPatience_seconds);
        link_->interrupted(number);
      } else {
        abandon(number);
      }
    }
    link_->child_ended();
    guard_.child_ended();
    reap();
  }

  /// A second signal: the ranks get it and half a second, and nobody else is waited for.
  void abandon(int signal) {
    if (!ended_) result_ = 128 + signal;
    ended_ = abandoned_ = true;
    if (!workers_.empty()) stop(signal, kSecondSignal_seconds);
  }

  void reap() {
    if (workers_.empty()) return;
    for (const WorkerExit& exit : workers_.reap()) {
      const int code = exit_code_of(exit.status);
      // A rank that saved because of the signal says 75: that is the answer, not 128 + n.
      if (ended_by_signal_ && code == kPreempted) result_ = kPreempted;
      if (code == 0 || exit.stopped) continue;
      failures_.push_back(
          describe_exit(config_, assignment_, exit, error_files_[static_cast<size_t>(exit.local_rank)]));
    }
    if (stopping_) {
      if (workers_.empty()) workers_gone();
    } else if (!failures_.empty()) {
      settle();
    } else if (workers_.empty()) {
      succeeded_ = true;
      logs_.finish_attempt();
      link_->succeeded(assignment_.round);
    }
  }

  /// Reports the culprit: a death by signal at once, another failure when no such death follows.
  void settle() {
    if (reported_round_ == assignment_.round) return;
    const auto by_signal =
        std::find_if(failures_.begin(), failures_.end(), [](const Failure& failure) { return failure.signal != 0; });
    if (by_signal != failures_.end()) return report(*by_signal);
    if (settle_timer_) return;
    settle_timer_ = loop_.after(kSettle_seconds, [this] { report(failures_.front()); });
  }

  void report(const Failure& culprit) {
    if (settle_timer_) loop_.cancel(*settle_timer_);
    settle_timer_.reset();
    reported_round_ = assignment_.round;
    complete_error_file(culprit);
    link_->failed(assignment_.round, culprit);
  }

  const LaunchConfig& config_;
  Signals signals_;
  EventLoop loop_;
  const std::string token_;  // taken before the guard is forked: it is in no process' environment then
  const std::string mark_ = make_mark();
  WorkerLogs logs_;
  ProcessGuard guard_;
  WorkerGroup workers_;
  std::unique_ptr<JobLink> link_;
  MachineTopology topology_;
  Assignment assignment_{.round = -1};
  std::vector<std::string> error_files_;
  std::vector<Failure> failures_;
  std::optional<EventLoop::TimerId> kill_timer_, settle_timer_;
  int64_t reported_round_ = -1;
  bool stopping_ = false, succeeded_ = false, ended_ = false, ended_by_signal_ = false, interrupted_ = false;
  bool abandoned_ = false;
  int result_ = kOk;
};

}  // namespace

int run_agent(const LaunchConfig& config) { return Agent(config).run(); }

}  // namespace bert
