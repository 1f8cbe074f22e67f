// Takes the connections that come to a listening socket.
#pragma once

#include <functional>
#include <optional>

#include "app/net/event_loop.h"
#include "data/io/descriptor.h"

namespace bert {

/// Gives every connection to `accepted`, non-blocking. After some of them the loop's other descriptors have their turn.
/// Out of descriptors or memory it rests for a tenth of a second: the connections stay in the queue.
class Acceptor {
 public:
  Acceptor(EventLoop& loop, Descriptor listener, std::function<void(Descriptor)> accepted);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// The port that it listens on.
  [[nodiscard]] int64_t port() const;

 private:
  void accept_some();
  void rest();

  EventLoop& loop_;
  const Descriptor listener_;
  const std::function<void(Descriptor)> accepted_;
  std::optional<EventLoop::TimerId> rest_timer_;
};

}  // namespace bert
