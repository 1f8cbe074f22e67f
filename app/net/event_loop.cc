#include "app/net/event_loop.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr int kMostEventsAtOnce = 256;

static_assert(EPOLLIN == POLLIN && EPOLLOUT == POLLOUT && EPOLLERR == POLLERR && EPOLLHUP == POLLHUP,
              "callers name events as poll does");

}  // namespace

EventLoop::EventLoop() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw IoError(std::string("epoll_create1: ") + std::strerror(errno));
}

void EventLoop::update_kernel(int descriptor, const Watch& watch, bool known) const {
  epoll_event event{};
  event.events = static_cast<uint16_t>(watch.events);
  event.data.u64 = uint64_t{watch.number} << 32 | static_cast<uint32_t>(descriptor);
  if (epoll_ctl(epoll_.get(), known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, descriptor, &event) == 0) return;
  const std::string why = std::strerror(errno);
  throw IoError("cannot wait for events of descriptor " + std::to_string(descriptor) + ": " + why);
}

void EventLoop::watch(int descriptor, short events, Ready ready) {
  const Watch watch{next_watch_++, events, std::make_shared<const Ready>(std::move(ready))};
  update_kernel(descriptor, watch, watches_.contains(descriptor));
  watches_[descriptor] = watch;
}

void EventLoop::set_events(int descriptor, short events) {
  Watch& watch = watches_.at(descriptor);
  if (watch.events == events) return;
  watch.events = events;
  update_kernel(descriptor, watch, true);
}

void EventLoop::unwatch(int descriptor) {
  if (watches_.erase(descriptor) > 0) epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, descriptor, nullptr);
}

EventLoop::TimerId EventLoop::after(double seconds, std::function<void()> due) {
  constexpr double kLongest = 365.0 * 86400;
  const auto delay = std::chrono::duration<double>(std::min(seconds, kLongest));
  const TimerId id{Clock::now() + std::chrono::duration_cast<Clock::duration>(delay), next_timer_++};
  timers_[id] = std::move(due);
  return id;
}

void EventLoop::run_once() {
  int wait_ms = -1;
  if (!timers_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
    wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }
  std::array<epoll_event, kMostEventsAtOnce> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), kMostEventsAtOnce, wait_ms);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    // An earlier callback may have removed this watch, and a new watch may have the same descriptor.
    const auto found = watches_.find(static_cast<int>(event.data.u64 & UINT32_MAX));
    if (found == watches_.end() || found->second.number != event.data.u64 >> 32) continue;
    const std::shared_ptr<const Ready> callback = found->second.ready;  // the callback may unwatch itself
    (*callback)(static_cast<short>(event.events));
  }
  // Timers that these callbacks start wait for the next call, so that a timer that repeats at once does not block the
  // rest.
  const TimerId limit{Clock::now(), next_timer_};
  while (!timers_.empty() && timers_.begin()->first < limit && timers_.begin()->first.second < limit.second) {
    const auto due = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    due();
  }
}

}  // namespace bert
