// An HTTP server on a listening socket.
//
// Note [Sockets on one thread, handlers on others]
//
// One thread has all sockets (Boost.Asio) and never waits for a client or for a handler: a connection is a small state
// machine (Connection), and a silent one costs its memory alone. A request takes a thread of its own from the end of
// its body to its answer, because handlers block (GrowingPool: at most max_connections of them). Heads are parsed once,
// by Boost.Beast, and checked further where servers have disagreed (request_head.h). The time for a head, a body and an
// answer is limited as a whole, so that a client with one byte every few seconds ends too.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "app/http/types.h"
#include "data/io/descriptor.h"

namespace bert {

class HttpServer {
 public:
  /// Connections beyond max_connections, at a time. Each has one request, which gets 503 unless the handler answers it
  /// when full.
  static constexpr int64_t kExtraConnections = 64;

  /// Serves at once. A full server ends the connection that has waited longest for its client, to take a new one. `listener` is non-blocking, and listens. `handler` and `counts` outlive the server. Throws IoError.
  HttpServer(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits, HttpHandler& handler,
             ConnectionCounts& counts);
  /// end().
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Accepts the connections that have been made so far, then none. Every answer now ends its connection.
  void stop_accepting();
  /// Waits until no request has begun that is not answered. Returns false if `until` comes first.
  bool wait_until_answered(std::chrono::steady_clock::time_point until);
  /// Closes all connections and waits for their handlers.
  void end();

 private:
  class Impl;  // its headers are large
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bert
