#include "app/stop_signals.h"

#include <atomic>
#include <cstdint>
#include <ctime>

namespace bert {
namespace {

constexpr int64_t kSameWish_ns = 2'000'000'000;

std::atomic<int64_t> first_ns{0};  // of the monotonic clock; 0: none has come
static_assert(std::atomic<int64_t>::is_always_lock_free);

template <class Signals>
sigset_t signal_set(const Signals& signals) {
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
  if (first_ns.compare_exchange_strong(first, now) || now - first < kSameWish_ns) return;
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

StopSignals::StopSignals() {
  first_ns = 0;
  struct sigaction action {};
  action.sa_handler = handle;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
  const sigset_t held = signal_set(kSignals);
  sigset_t before;
  pthread_sigmask(SIG_UNBLOCK, &held, &before);
  held_ = sigismember(&before, SIGTERM) == 1;
}

StopSignals::~StopSignals() {
  if (held_) return;
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

void StopSignals::hold() {
  const sigset_t held = signal_set(kSignals);
  pthread_sigmask(SIG_BLOCK, &held, nullptr);
}

bool StopSignals::arrived() { return first_ns != 0; }

}  // namespace bert
