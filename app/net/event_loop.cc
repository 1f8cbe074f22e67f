#include "app/net/event_loop.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace bert {

void EventLoop::watch(int descriptor, short events, Ready ready) {
  watches_[descriptor] = {next_id_++, events, std::move(ready)};
}

void EventLoop::set_events(int descriptor, short events) { watches_.at(descriptor).events = events; }

void EventLoop::unwatch(int descriptor) { watches_.erase(descriptor); }

EventLoop::TimerId EventLoop::after(double seconds, std::function<void()> due) {
  constexpr double kLongest = 365.0 * 86400;
  const auto delay = std::chrono::duration<double>(std::min(seconds, kLongest));
  const TimerId id{Clock::now() + std::chrono::duration_cast<Clock::duration>(delay), next_id_++};
  timers_[id] = std::move(due);
  return id;
}

void EventLoop::run_once() {
  std::vector<pollfd> descriptors;
  std::vector<uint64_t> ids;
  for (const auto& [descriptor, watch] : watches_) {
    descriptors.push_back({descriptor, watch.events, 0});
    ids.push_back(watch.id);
  }
  int wait_ms = -1;
  if (!timers_.empty()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first.first - Clock::now());
    wait_ms = static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000));
  }
  if (poll(descriptors.data(), descriptors.size(), wait_ms) < 0 && errno != EINTR) return;
  for (size_t i = 0; i < descriptors.size(); ++i) {
    if (descriptors[i].revents == 0) continue;
    // An earlier callback may have removed this watch, and a new watch may have the same descriptor.
    const auto found = watches_.find(descriptors[i].fd);
    if (found == watches_.end() || found->second.id != ids[i]) continue;
    const Ready ready = found->second.ready;  // a copy: the callback may unwatch itself
    ready(descriptors[i].revents);
  }
  // Timers that these callbacks start wait for the next call, so that a timer that repeats at once does not block the
  // rest.
  const TimerId limit{Clock::now(), next_id_};
  while (!timers_.empty() && timers_.begin()->first < limit && timers_.begin()->first.second < limit.second) {
    const auto due = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    due();
  }
}

}  // namespace bert
