// An HTTP server on a listening socket: cpp-httplib between limits of its own.
//
// Note [A thread for each connection]
//
// cpp-httplib reads a request on a thread that waits for the client. Its pool has few threads, and clients that send a
// part of a request and then nothing keep them all. Here every connection has a thread: max_connections of them, and
// kRefusers more that tell further clients why they are refused. So a slow client delays nobody, and costs a sleeping
// thread until its time is over. The time for a head, a body and an answer is limited as a whole (Connection); accepted
// sockets, heads and the end of connections are this server's own. cpp-httplib routes, reads bodies, chunked ones too,
// and writes answers.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "app/serve/http_types.h"
#include "data/io/descriptor.h"

namespace bert {

class HttpServer {
 public:
  static constexpr int64_t kRefusers = 64;

  /// Serves at once. `listener` is non-blocking, and listens. `handler` and `counts` outlive the server. Throws IoError.
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
  /// Closes all connections and waits for their threads.
  void end();

 private:
  class Impl;  // cpp-httplib's classes depend on its macros, which other files need not know
  const std::unique_ptr<Impl> impl_;
};

}  // namespace bert
