#include "app/net/gatekeeper.h"

#include <algorithm>

namespace bert {
namespace {

std::string address_of(const std::string& peer) { return peer.substr(0, peer.rfind(':')); }

}  // namespace

Gatekeeper::Gatekeeper(EventLoop& loop, Descriptor listener, std::string token, Events events)
    : loop_(loop),
      token_(std::move(token)),
      events_(std::move(events)),
      turned_away_(loop, port_of(listener.get())),
      acceptor_(loop, std::move(listener), [this](Descriptor socket) { start(std::move(socket)); }) {}

void Gatekeeper::start(Descriptor socket) {
  if (pending_.size() >= kMostPending) make_room();
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
  const auto most =
      std::ranges::max_element(pending_of_address_, [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto oldest = std::ranges::find_if(pending_, [&](const auto& entry) {
    return !entry.second.passed && pending_of_address_.at(entry.second.address) == most->second;
  });
  if (oldest == pending_.end()) return;  // all pending connections have been admitted and will be taken
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

}  // namespace bert
