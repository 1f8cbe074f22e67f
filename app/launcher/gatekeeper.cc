#include "app/launcher/gatekeeper.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace bert {
namespace {

constexpr int kAcceptsAtOnce = 64;  // then the others have their turn
constexpr double kReportInterval_seconds = 10;

std::string address_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

Gatekeeper::Gatekeeper(EventLoop& loop, Descriptor listener, std::string token, Events events)
    : loop_(loop),
      listener_(std::move(listener)),
      token_(std::move(token)),
      where_("port " + std::to_string(port_of(listener_.get()))),
      events_(std::move(events)) {
  loop_.watch(listener_.get(), POLLIN, [this](short) { accept_some(); });
  report_timer_ = loop_.after(kReportInterval_seconds, [this] { report(false); });
}

Gatekeeper::~Gatekeeper() {
  loop_.cancel(report_timer_);
  if (accept_timer_) loop_.cancel(*accept_timer_);
  loop_.unwatch(listener_.get());
  report(true);
}

void Gatekeeper::accept_some() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (no_descriptor_left(errno)) accept_timer_ = pause(loop_, listener_.get());
      return;
    }
    if (pending_.size() >= kMostPending) make_room();
    start(std::move(socket));
  }
}

void Gatekeeper::start(Descriptor socket) {
  const uint64_t id = next_++;
  SecureChannel::Events events;
  events.ready = [this, id] {
    const auto found = pending_.find(id);
    found->second.passed = true;
    events_.admitted(id);
  };
  events.frame = [this, id](const Frame& frame) { events_.frame(id, frame); };
  events.closed = [this, id](const std::string& why) {
    const auto found = pending_.find(id);
    if (found == pending_.end() || found->second.passed) return events_.closed(id, why);
    count(why, found->second.channel->peer());
    loop_.after(0, [this, id] { forget(id); });
  };
  if (events_.congested) events.congested = [this, id](bool on) { events_.congested(id, on); };
  Pending& entry = pending_[id];
  entry.channel = std::make_unique<SecureChannel>(loop_, std::move(socket), SecureChannel::Role::kHost, token_, events);
  entry.address = address_of(entry.channel->peer());
  ++pending_of_address_[entry.address];
}

void Gatekeeper::make_room() {
  const auto most = std::max_element(pending_of_address_.begin(), pending_of_address_.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::find_if(pending_.begin(), pending_.end(), [&](const auto& entry) {
    return !entry.second.passed && pending_of_address_.at(entry.second.address) == most->second;
  });
  if (oldest == pending_.end()) return;  // those that have passed are about to be taken
  if (!oldest->second.channel->closed()) count("too many at once", oldest->second.channel->peer());
  forget(oldest->first);
}

void Gatekeeper::forget(uint64_t connection) {
  const auto found = pending_.find(connection);
  if (found == pending_.end()) return;
  const auto of_address = pending_of_address_.find(found->second.address);
  if (--of_address->second == 0) pending_of_address_.erase(of_address);
  pending_.erase(found);
}

std::unique_ptr<SecureChannel> Gatekeeper::take(uint64_t connection) {
  const auto found = pending_.find(connection);
  if (found == pending_.end()) return nullptr;
  std::unique_ptr<SecureChannel> channel = std::move(found->second.channel);
  forget(connection);
  return channel;
}

void Gatekeeper::count(const std::string& reason, const std::string& peer) {
  ++turned_away_[reason];
  last_address_ = peer;
}

void Gatekeeper::report(bool last) {
  int64_t total = 0;
  std::string reasons;
  for (const auto& [reason, number] : turned_away_) {
    total += number;
    reasons += (reasons.empty() ? "" : ", ") + std::to_string(number) + " " + reason;
  }
  if (total > reported_) {
    std::fprintf(stderr, "bertrun: turned away %ld connections to %s so far (%s), the last from %s\n",
                 static_cast<long>(total), where_.c_str(), reasons.c_str(), last_address_.c_str());
    reported_ = total;
  }
  if (!last) report_timer_ = loop_.after(kReportInterval_seconds, [this] { report(false); });
}

}  // namespace bert
