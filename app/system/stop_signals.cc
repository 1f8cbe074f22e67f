#include "app/system/stop_signals.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr int64_t kSameWish_ns = 2'000'000'000;

std::atomic<int64_t> first_ns{0};  // time of the first signal by the monotonic clock; 0: no signal yet
std::atomic<int> first_number{0};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

/// The signals that ask to stop. An ignored SIGHUP is not among them.
std::vector<int> signals_to_take() {
  std::vector<int> signals = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction action {};
  sigaction(SIGHUP, nullptr, &action);
  if (action.sa_handler != SIG_IGN) signals.push_back(SIGHUP);
  return signals;
}

sigset_t signal_set(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : signals) sigaddset(&set, number);
  return set;
}

void handle(int number) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t now = time.tv_sec * 1'000'000'000 + time.tv_nsec;
  int64_t first = 0;
  const bool is_first = first_ns.compare_exchange_strong(first, now);
  if (is_first) first_number = number;
  if (is_first || now - first < kSameWish_ns) return;
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

StopSignals::StopSignals() : taken_(signals_to_take()), before_(taken_.size()), end_(eventfd(0, EFD_CLOEXEC)) {
  if (!end_) throw IoError(std::string("eventfd: ") + std::strerror(errno));
  first_ns = 0;
  first_number = 0;
  const sigset_t held = signal_set(taken_);
  pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
  struct sigaction action {};
  action.sa_handler = handle;
  for (size_t i = 0; i < taken_.size(); ++i) sigaction(taken_[i], &action, &before_[i]);
  listener_ = std::thread([held, end = end_.get()] {
    pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
    pollfd ended{end, POLLIN, 0};
    while (poll(&ended, 1, -1) < 0) continue;  // interrupted by a signal, which has been handled
  });
}

StopSignals::~StopSignals() {
  if (sigismember(&mask_before_, SIGTERM) == 1) {
    end_.release();
    listener_.detach();
    return;
  }
  eventfd_write(end_.get(), 1);
  listener_.join();
  for (size_t i = 0; i < taken_.size(); ++i) sigaction(taken_[i], &before_[i], nullptr);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void StopSignals::hold() {
  const sigset_t held = signal_set(signals_to_take());
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

bool StopSignals::arrived() { return first_ns != 0; }
int StopSignals::first() { return first_number; }

}  // namespace bert
