// A port on loopback that only this process's user may use.
#pragma once

#include <functional>

#include "app/net/acceptor.h"
#include "app/net/peer_finder.h"
#include "app/net/turned_away.h"

namespace bert {

/// Passes the connections of this process's effective user, non-blocking, to `accepted`. A connection of anybody else,
/// or of nobody, because its socket has been closed, is reset, counted and reported. It costs a descriptor only for
/// the moment of its check.
class LocalAcceptor {
 public:
  /// `listener` listens on a loopback address.
  LocalAcceptor(EventLoop& loop, Descriptor listener, std::function<void(Descriptor)> accepted);

  /// While closed, connections wait in the kernel's queue.
  void set_open(bool open) { acceptor_.set_open(open); }
  [[nodiscard]] int64_t port() const { return acceptor_.port(); }
  [[nodiscard]] const PeerFinder& peers() const { return peers_; }
  [[nodiscard]] const TurnedAway& turned_away() const { return turned_away_; }

 private:
  void check(Descriptor connection);

  const std::function<void(Descriptor)> accepted_;
  const PeerFinder peers_;
  TurnedAway turned_away_;
  Acceptor acceptor_;  // last member: its callback uses the others
};

}  // namespace bert
