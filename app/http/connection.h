// A client's connection: a state machine on the thread of the sockets.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "app/http/request_head.h"
#include "app/http/request_parser.h"
#include "app/http/types.h"

namespace bert {

/// The server, as its connections see it. The thread of the sockets calls all functions.
class ConnectionOwner {
 public:
  virtual ~ConnectionOwner() = default;
  [[nodiscard]] virtual const ConnectionLimits& limits() const = 0;
  [[nodiscard]] virtual HttpHandler& handler() const = 0;
  /// True if every answer ends its connection.
  [[nodiscard]] virtual bool draining() const = 0;
  /// Runs `task` on a thread of its own. Throws std::system_error if there is none.
  virtual void run(std::function<void()> task) = 0;
  virtual void request_begins() = 0;
  virtual void request_ends() = 0;
  /// A request gets 503, as all connections are taken.
  virtual void request_refused() = 0;
};

/// Functions are called on the thread of the sockets. What is under way holds the connection alive.
class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  using Clock = std::chrono::steady_clock;

  /// `owner` outlives the connection. `closed` is called once. `is_extra`: the server has as many connections as it may
  /// have, and one request is answered: with 503, unless it is answered when full.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionOwner& owner, bool is_extra, std::function<void()> closed);

  /// Answers requests until the client or the server ends the connection.
  void serve() { await_request(); }
  /// The event that the connection waits for, in the order in which a full server ends connections for a new one.
  enum class Wait : uint8_t { kFirstHead, kNextHead, kBody, kServer };
  [[nodiscard]] Wait wait() const { return wait_; }
  [[nodiscard]] Clock::time_point accepted() const { return accepted_; }
  /// Ends the connection at once.
  void close();

 private:
  using Step = void (Connection::*)();
  using Completion = void (Connection::*)(boost::beast::error_code);

  // The states, in their order. Each starts one operation, whose end begins the next.
  void await_request();
  void read_head();
  void take_head(size_t size);
  void read_body();
  void body_arrived(boost::beast::error_code error);
  void ask();
  void send(ServerResponse response);
  void ask_for_part();
  void send_part(const std::string& part);
  void end_request();
  void linger();

  void send_error(const HttpError& error);
  void refuse(const HttpError& error);
  void limit(Clock::time_point until);
  void receive(Clock::time_point until, Completion then);
  void head_bytes(boost::beast::error_code error);
  void lingering_bytes(boost::beast::error_code error);
  void write(std::string bytes, Step then);
  void write_rest();
  void run(std::function<std::function<void()>()> task);
  [[nodiscard]] std::string_view waiting() const;

  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;  // of the operation that is under way
  ConnectionOwner& owner_;
  const std::function<void()> closed_;
  boost::beast::flat_buffer buffer_;  // bytes of the client that have not been taken
  bool timed_out_ = false;            // the operation that has ended
  const bool is_extra_;
  const Clock::time_point accepted_ = Clock::now();
  Wait wait_ = Wait::kFirstHead;
  // The request that is under way.
  bool requested_ = false;
  std::optional<RequestParser> parser_;
  RequestHead head_;
  ServerRequest request_;
  size_t searched_ = 0;  // bytes of the head without its end
  Clock::time_point begin_, head_deadline_, body_deadline_;
  // Its answer.
  int status_ = 0;
  bool close_ = false;  // the connection ends with it
  std::function<std::string()> next_part_;
  std::optional<Clock::time_point> answer_deadline_;  // from its first byte
  std::string out_;
  size_t sent_ = 0;
  Step then_ = nullptr;  // after out_
  // The end.
  Clock::time_point linger_deadline_;
  size_t lingered_ = 0;  // bytes
};

}  // namespace bert
