// The job's store: LibTorch's c10d::TCPStore on a loopback socket, in a separate process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "app/net/event_loop.h"
#include "app/net/socket.h"

namespace bert {

/// Listens on loopback from the start, so that ranks can connect at once and no other process takes the port. A process
/// for the store is forked in each round, so that no key of an earlier attempt remains. Only this process loads
/// LibTorch; bertrun never does. With one rank the process is forked only when the rank connects.
class StoreServer {
 public:
  /// `preferred`: a loopback endpoint whose port is used if it is free. `failed` is called with the reason if a rank
  /// connects and the store cannot be served.
  StoreServer(EventLoop& loop, const Endpoint& preferred, std::function<void(const std::string&)> failed);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Starts an empty store for a round of `world_size` ranks.
  void start_round(int64_t world_size);
  void stop();
  /// Checks if the serving process has ended. To be called on SIGCHLD.
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
