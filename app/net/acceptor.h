// Accepts the connections of a listening socket.
#pragma once

#include <functional>
#include <optional>

#include "app/net/event_loop.h"
#include "data/io/descriptor.h"

namespace bert {

/// Passes every connection, non-blocking, to `accepted`. After at most 64 connections the loop's other descriptors get
/// their turn. When descriptors or memory run out, it says so once and pauses for 0.1 s; connections stay in the
/// kernel's queue.
class Acceptor {
 public:
  Acceptor(EventLoop& loop, Descriptor listener, std::function<void(Descriptor)> accepted);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// While closed, connections stay in the kernel's queue. An acceptor is open at first.
  void set_open(bool open);
  /// The port of the listener.
  [[nodiscard]] int64_t port() const;

 private:
  void accept_some();
  void rest(int error);
  void update();

  EventLoop& loop_;
  const Descriptor listener_;
  const std::function<void(Descriptor)> accepted_;
  std::optional<EventLoop::TimerId> rest_timer_;
  bool open_ = true, rested_ = false;
};

}  // namespace bert
