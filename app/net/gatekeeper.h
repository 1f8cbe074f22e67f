// The only socket of a job that is open to the network. It admits clients that know the token, and counts the others.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "app/net/acceptor.h"
#include "app/net/event_loop.h"
#include "app/net/secure_channel.h"
#include "app/net/socket.h"
#include "app/net/turned_away.h"

namespace bert {

/// Accepts connections and runs their handshakes. At most kMostPending handshakes are open. One more closes the oldest
/// connection of the address that has the most, so an address that floods the port displaces only itself. Of addresses
/// with equally many, the connection that has waited longest is closed. Refused connections are counted and reported.
class Gatekeeper {
 public:
  static constexpr size_t kMostPending = 256;
  /// Events of a connection, with its number.
  struct Events {
    std::function<void(uint64_t)> admitted;  // the handshake succeeded: take() returns the channel
    std::function<void(uint64_t, const Frame&)> frame;
    std::function<void(uint64_t, const std::string& why)> closed;  // for an admitted connection
    std::function<void(uint64_t, bool on)> congested = {};         // see SecureChannel::Events; may be empty
  };

  Gatekeeper(EventLoop& loop, Descriptor listener, std::string token, Events events);
  Gatekeeper(const Gatekeeper&) = delete;
  Gatekeeper& operator=(const Gatekeeper&) = delete;

  /// Hands over the channel of an admitted connection. Its frames and its end are still reported under its number.
  /// Returns null if the connection no longer exists.
  std::unique_ptr<SecureChannel> take(uint64_t connection);
  /// Counts a client that was refused for another reason.
  void count(const std::string& reason, const std::string& peer) { turned_away_.count(reason, peer); }
  [[nodiscard]] const std::map<std::string, int64_t>& turned_away() const { return turned_away_.by_reason(); }
  [[nodiscard]] size_t pending() const { return pending_.size(); }

 private:
  void start(Descriptor socket);
  void make_room();
  void forget(uint64_t connection);

  EventLoop& loop_;
  const std::string token_;
  const Events events_;
  struct Pending {
    std::unique_ptr<SecureChannel> channel;
    std::string address;
    bool passed = false;
  };
  std::map<uint64_t, Pending> pending_;  // ordered by arrival
  std::map<std::string, size_t> pending_of_address_;
  TurnedAway turned_away_;
  uint64_t next_ = 1;
  Acceptor acceptor_;  // last member: its callbacks use the others
};

}  // namespace bert
