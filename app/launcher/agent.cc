#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <vector>

#include "app/launcher/job/culprit.h"
#include "app/launcher/job/job_link.h"
#include "app/launcher/job/verdict.h"
#include "app/launcher/launcher.h"
#include "app/launcher/ranks/failure.h"
#include "app/launcher/ranks/process_guard.h"
#include "app/launcher/ranks/worker_group.h"
#include "app/launcher/ranks/worker_logs.h"
#include "app/launcher/settings/job_token.h"
#include "app/net/event_loop.h"
#include "app/system/console.h"
#include "app/system/exit_codes.h"
#include "app/system/machine/processors.h"
#include "app/system/rank_state.h"
#include "app/system/signals.h"
#include "data/io/error.h"

namespace bert {
namespace {

// Repeats of an ending signal within this time count as the first. A batch shell and the scheduler may send the same
// request twice.
constexpr std::chrono::seconds kSameWish(2);
constexpr double kSecondSignal_seconds = 0.5;  // from a second ending signal to SIGKILL
constexpr double kPatience_seconds = 2;        // wait for a console that takes no output, after the first ending signal

/// The signals that the launcher handles. The constructor blocks them and reads them from a descriptor.
class Signals {
 public:
  explicit Signals(const std::vector<int>& ending) {
    sigemptyset(&set_);
    for (const int number : {SIGCHLD, SIGUSR1, SIGUSR2}) sigaddset(&set_, number);
    for (const int number : ending) {
      if (!ignored(number)) sigaddset(&set_, number);
    }
    sigprocmask(SIG_BLOCK, &set_, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);  // some parents leave SIGCHLD ignored; then deaths of ranks would stay unseen
    descriptor_ = Descriptor(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_) throw IoError(std::string("signalfd: ") + std::strerror(errno));
  }
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }
  /// The number of the next pending signal; 0 if there is none.
  [[nodiscard]] int next() const {
    signalfd_siginfo info{};
    return read(descriptor_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
  }

 private:
  /// True for a signal that the parent process ignores: nohup ignores SIGHUP, and a shell ignores SIGINT for background
  /// jobs.
  static bool ignored(int number) {
    struct sigaction action {};
    return (number == SIGHUP || number == SIGINT) && sigaction(number, nullptr, &action) == 0 &&
           action.sa_handler == SIG_IGN;
  }
  sigset_t set_{};
  Descriptor descriptor_;
};

/// The job's token. A job of one node has no token, but the variables are removed from the environment all the same.
JobToken take_token(const RendezvousConfig& rendezvous) {
  if (rendezvous.max_nodes > 1) return JobToken(rendezvous);
  forget_token();
  return JobToken();
}

/// One node's part of a job: starts the ranks that the rendezvous assigns, watches them, stops them, reports failures.
class Agent {
 public:
  explicit Agent(const LaunchConfig& config)
      : config_(config),
        signals_(config.ending_signals),
        token_(take_token(config.rendezvous)),
        logs_(loop_, config),
        guard_(mark_),
        workers_(guard_),
        link_(make_job_link(loop_, config, token_.bytes(), [this](const JobOrder& order) { obey(order); })) {
    if (!config.numa_binding.empty()) topology_ = machine_topology();
  }

  /// Runs this node's part until the job ends. Returns 0, the exit code of the first rank that failed (128 + n if signal
  /// n killed it, 75 if ranks were preempted), 128 + n after signal n, or 69 if nodes are missing or lost.
  int run() {
    loop_.watch(signals_.descriptor(), POLLIN, [this](short) { take_signals(); });
    const auto done = [this] { return ended_ && workers_.empty() && link_->finished() && logs_.drained(); };
    while (!done() && !(abandoned_ && workers_.empty())) loop_.run_once();
    return verdict_.result();
  }

 private:
  void obey(const JobOrder& order) {
    if (order.kind == JobOrder::kStart) return start(order.assignment);
    if (order.kind == JobOrder::kLeave) {
      verdict_ = Verdict(order.exit_code);
      return;
    }
    if (!order.reason.empty()) say(order.reason);
    if (order.kind == JobOrder::kRestart) {
      if (order.failed) kill_suspended();
      stop(SIGTERM, order.failed ? config_.failure_grace_seconds : config_.shutdown_timeout_seconds);
      return;
    }
    ended_ = true;
    saving_ = order.signal != 0 || order.exit_code == kPreempted;
    verdict_ = Verdict(order.exit_code, saving_);
    for (const Failure& failure : failures_) hear(failure);
    if (order.signal != 0) {
      stop(order.signal, config_.shutdown_timeout_seconds);
    } else if (saving_) {
      stop(0, config_.save_timeout_seconds);  // the other ranks are saving too
    } else {
      kill_suspended();
      stop(SIGTERM, config_.failure_grace_seconds);
    }
    if (saving_) workers_.signal_all(SIGCONT);  // a suspended rank cannot save
  }

  void start(const Assignment& assignment) {
    if (ended_) return;
    assignment_ = assignment;
    failures_.clear();
    culprit_ = Culprit();
    traces_.clear();
    stopping_ = succeeded_ = false;
    int64_t rank = 0;
    try {
      const std::vector<WorkerFiles> files = logs_.start_attempt(assignment);
      const StoreAddress store = link_->open_round(assignment);
      for (; rank < config_.nproc_per_node; ++rank) {
        WorkerSpec spec;
        spec.files = files[static_cast<size_t>(rank)];
        traces_.push_back({spec.files.error_file, Descriptor(make_rank_state())});
        spec.state = traces_.back().state.get();
        spec.command = worker_command(config_, rank);
        spec.environment = worker_environment(config_, assignment, store, rank, spec.files.error_file);
        spec.environment[kMarkVariable] = mark_;
        if (!config_.numa_binding.empty())
          spec.processors = processors_of_rank(topology_, config_.numa_binding, rank, config_.nproc_per_node);
        workers_.start(spec, rank);
      }
      logs_.started();
    } catch (...) {
      Failure failure;  // pid stays 0: the rank was never started, and a restart would not help
      std::string type;
      failure.exit_code = exit_code_of_current_exception(type, failure.message);
      failure.rank = assignment.first_rank + rank;
      failure.local_rank = rank;
      failure.host = config_.rendezvous.local_addr;
      link_->failed({assignment.round, failure});
    }
  }

  /// Sends `signal` to the ranks (0: sends nothing), and SIGKILL after `seconds`.
  void stop(int signal, double seconds) {
    stopping_ = true;
    if (workers_.empty()) return workers_gone();
    workers_.begin_stop();
    if (signal != 0) workers_.signal_all(signal);
    if (kill_timer_) loop_.cancel(*kill_timer_);
    kill_timer_ = loop_.after(seconds, [this, seconds] {
      kill_timer_.reset();
      if (!abandoned_) out_of_time_ = fmt::format("it was given {:g} s; --save-timeout gives more", seconds);
      workers_.signal_all(SIGKILL);
    });
  }

  /// Kills suspended ranks: SIGTERM does not reach them.
  void kill_suspended() {
    for (const RunningWorker& worker : workers_.suspended()) {
      if (!culprit_.heard()) say(describe_suspended(worker) + "; killing it");
      workers_.kill_one(worker.pid);
    }
  }

  [[nodiscard]] std::string describe_suspended(const RunningWorker& worker) const {
    return fmt::format("rank {} (host {}, pid {}) is stopped", assignment_.first_rank + worker.local_rank,
                       config_.rendezvous.local_addr, worker.pid);
  }

  void workers_gone() {
    if (kill_timer_) loop_.cancel(*kill_timer_);
    kill_timer_.reset();
    logs_.finish_attempt();
    if (!succeeded_) kill_marked(mark_);
    link_->stopped(assignment_.round, verdict_.save_result());
  }

  void take_signals() {
    while (const int number = signals_.next()) {
      if (number == SIGCHLD) continue;
      const auto& ending = config_.ending_signals;
      if (std::ranges::find(ending, number) == ending.end()) {
        workers_.signal_all(number);  // SIGUSR1 and SIGUSR2 go to the ranks, which may save and exit with 75
      } else if (!interrupted_) {
        interrupted_ = EventLoop::Clock::now();
        logs_.set_patience(kPatience_seconds);
        link_->interrupted(number);
        if (ended_ && saving_) say("ranks are still saving; one more signal ends them");
      } else if (EventLoop::Clock::now() - *interrupted_ >= kSameWish) {
        abandon(number);
      }
    }
    guard_.child_ended();
    reap();
  }

  /// After a second signal: passes it to the ranks, kills them half a second later, and waits for no other node.
  void abandon(int signal) {
    if (!ended_) verdict_ = Verdict(128 + signal);
    ended_ = abandoned_ = true;
    if (!workers_.empty()) stop(signal, kSecondSignal_seconds);
  }

  void reap() {
    if (workers_.empty()) return;
    std::vector<Failure> seen;
    for (const WorkerExit& exit : workers_.reap()) {
      if (exit_code_of(exit.status) == kOk || (exit.stopped && !saving_)) continue;
      seen.push_back(describe_exit(config_, assignment_, exit, traces_[static_cast<size_t>(exit.local_rank)]));
      if (exit.stopped && seen.back().signal == SIGKILL) seen.back().note = out_of_time_;
    }
    std::ranges::sort(seen, likelier_cause);
    for (const Failure& failure : seen) {
      if (saving_) hear(failure);
      failures_.push_back(failure);
      if (!stopping_) report(failure);
    }
    if (!workers_.empty()) return;
    if (stopping_) {
      workers_gone();
    } else if (failures_.empty()) {
      succeeded_ = true;
      logs_.finish_attempt();
      link_->succeeded(assignment_.round);
    }
  }

  /// Counts the exit of a rank that had to save. Names the first rank that could not.
  void hear(const Failure& failure) {
    if (!verdict_.take(failure.exit_code)) return;
    say(one_line(failure) + "; it was to save");
    complete_error_file(failure);
  }

  /// Tells the job of a failed rank. The error file of the likeliest culprit here is completed.
  void report(Failure failure) {
    const std::vector<RunningWorker> suspended = workers_.suspended();
    for (const RunningWorker& worker : suspended)
      failure.note += (failure.note.empty() ? "" : ", ") + describe_suspended(worker);
    if (culprit_.hear(failure, EventLoop::Clock::now())) complete_error_file(failure);
    link_->failed({assignment_.round, failure, workers_.size() - static_cast<int64_t>(suspended.size())});
  }

  const LaunchConfig& config_;
  Signals signals_;
  EventLoop loop_;
  const JobToken token_;  // taken before the guard is forked, so that no process has the token in its environment
  const std::string mark_ = make_mark();
  WorkerLogs logs_;
  ProcessGuard guard_;
  WorkerGroup workers_;
  std::unique_ptr<JobLink> link_;
  MachineTopology topology_;
  Assignment assignment_{.round = -1};
  std::vector<RankTraces> traces_;  // index: local rank
  std::vector<Failure> failures_;
  Culprit culprit_;  // among failures_
  std::optional<EventLoop::TimerId> kill_timer_;
  std::optional<EventLoop::Clock::time_point> interrupted_;  // time of the first ending signal
  std::string out_of_time_;  // note about a rank that was killed because its time was up
  bool stopping_ = false, succeeded_ = false, ended_ = false, abandoned_ = false;
  bool saving_ = false;  // the job ends, and the exit codes of the ranks count
  Verdict verdict_;
};

}  // namespace

int launch_command(int argc, char** argv) {
  const auto config = parse_launch_command(argc, argv);
  return config ? Agent(*config).run() : kOk;
}

}  // namespace bert
