// The job's store: LibTorch's c10d::TCPStore on a loopback socket, in a process of its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "app/net/event_loop.h"
#include "app/net/socket.h"

namespace bert {

/// Listens on loopback from the start, so that ranks can connect at once and no other process takes the port. The
/// process that serves the store is forked for each round (no key of an earlier attempt is left) and loads LibTorch
/// then: bertrun itself never does. With one rank it is forked only when somebody connects.
class StoreServer {
 public:
  /// `preferred`: a loopback endpoint, whose port is used when it is free. `failed` is called when somebody connects
  /// and the store cannot be served, with the reason.
  StoreServer(EventLoop& loop, const Endpoint& preferred, std::function<void(const std::string&)> failed);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// A fresh store for a round of so many ranks.
  void start_round(int64_t world_size);
  void stop();
  /// Looks whether the serving process has ended; call it on SIGCHLD.
  void reap();
  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }

 private:
  void serve();

  EventLoop& loop_;
  std::function<void(const std::string&)> failed_;
  Descriptor listener_, errors_;
  Endpoint endpoint_;
  pid_t server_ = 0;
  std::string error_;
};

}  // namespace bert
