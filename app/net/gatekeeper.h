// The one socket that a job opens to the network: lets in who knows the token, and counts who does not.
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

namespace bert {

/// Accepts connections and runs their handshakes. Those under way are at most kMostPending; one more makes the oldest
/// of the address that has most of them go, so that an address which floods crowds out itself; of addresses that have
/// as many, the one that has waited longest. Whoever is turned away is counted by reason; a line about it appears at
/// most every ten seconds and at the end.
class Gatekeeper {
 public:
  static constexpr size_t kMostPending = 256;
  /// What happens to a connection, by its number.
  struct Events {
    std::function<void(uint64_t)> admitted;  // it has passed: take() gives the channel
    std::function<void(uint64_t, const Frame&)> frame;
    std::function<void(uint64_t, const std::string& why)> closed;  // of an admitted one
    std::function<void(uint64_t, bool on)> congested = {};         // SecureChannel::Events's; may be empty
  };

  Gatekeeper(EventLoop& loop, Descriptor listener, std::string token, Events events);
  ~Gatekeeper();
  Gatekeeper(const Gatekeeper&) = delete;
  Gatekeeper& operator=(const Gatekeeper&) = delete;

  /// Hands over an admitted connection's channel, whose frames and end go on being reported under its number. Null when
  /// there is no such connection any more.
  std::unique_ptr<SecureChannel> take(uint64_t connection);
  /// Counts something else that was turned away.
  void count(const std::string& reason, const std::string& peer);
  [[nodiscard]] const std::map<std::string, int64_t>& turned_away() const { return turned_away_; }
  [[nodiscard]] size_t pending() const { return pending_.size(); }

 private:
  void start(Descriptor socket);
  void make_room();
  void forget(uint64_t connection);
  void report(bool last);

  EventLoop& loop_;
  const std::string token_;
  const Events events_;
  struct Pending {
    std::unique_ptr<SecureChannel> channel;
    std::string address;
    bool passed = false;
  };
  std::map<uint64_t, Pending> pending_;  // in the order of their coming
  std::map<std::string, size_t> pending_of_address_;
  std::map<std::string, int64_t> turned_away_;
  int64_t reported_ = 0;
  std::string last_address_;
  EventLoop::TimerId report_timer_;
  uint64_t next_ = 1;
  Acceptor acceptor_;  // last: what it calls uses the others
};

}  // namespace bert
