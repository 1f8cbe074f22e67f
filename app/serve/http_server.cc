#include "app/serve/http_server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "app/serve/connection.h"
#include "app/serve/growing_pool.h"
#include "app/serve/request_head.h"
#include "data/io/error.h"

namespace bert {

namespace {

/// A request and its answer.
struct Exchange {
  Connection& connection;
  ServerRequest request = {};
  const HttpError* error = nullptr;  // the answer, if the head could not be read
  bool close = false;                // the connection ends with the answer
  bool http_1_0 = false;
  int64_t content_length = 0;
  int status = 0;  // of the answer
};

}  // namespace

class HttpServer::Impl : private httplib::Server {
 public:
  Impl(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits, HttpHandler& handler,
       ConnectionCounts& counts);
  ~Impl() override { end(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void stop_accepting();
  bool wait_until_answered(Connection::Clock::time_point until);
  void end();

 private:
  void accept_connections();
  void start(Descriptor socket);
  void serve(int socket);
  void refuse(int socket) const;
  bool answer_one(Connection& connection);
  bool answer(Connection& connection, Exchange& exchange);
  [[nodiscard]] HttpError too_large() const;
  void read_body(const httplib::ContentReader& body, Exchange& exchange) const;
  HandlerResponse check(httplib::Response& response) const;
  void respond(const httplib::ContentReader* body, httplib::Response& response) const;
  static thread_local Exchange* exchange_;  // of this thread: cpp-httplib passes nothing through

  const Descriptor listener_, stop_, end_;  // stop_, end_: eventfds
  const int64_t max_connections_;
  const ConnectionLimits limits_;
  HttpHandler& handler_;
  ConnectionCounts& counts_;
  const std::string refusal_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> refusing_{0};
  std::mutex mutex_;  // of the members below
  std::condition_variable changed_;
  int64_t in_flight_ = 0;  // requests that have begun
  std::set<int> sockets_;  // open
  GrowingPool threads_;
  std::thread acceptor_;
};

thread_local Exchange* HttpServer::Impl::exchange_ = nullptr;

ServerResponse error_response(const HttpError& error) {
  return {
      .status = error.status,
      .body = nlohmann::json{{"error", error.what()}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      .fields = error.fields};
}

namespace {

Descriptor event() {
  Descriptor result(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!result) throw IoError(std::string("eventfd: ") + std::strerror(errno));
  return result;
}

void put(ServerResponse&& from, bool http_1_0, httplib::Response& to) {
  to.status = from.status;
  for (const auto& [name, value] : from.fields) to.set_header(name, value);
  if (from.next_part == nullptr) {
    to.set_content(from.body, from.content_type);
    return;
  }
  const auto provider = [next = std::move(from.next_part)](size_t, httplib::DataSink& sink) {
    const std::string part = next();
    if (part.empty()) {
      sink.done();
      return true;
    }
    return sink.write(part.data(), part.size());
  };
  if (http_1_0) {
    to.set_content_provider(from.content_type, provider);
  } else {
    to.set_chunked_content_provider(from.content_type, provider);
  }
}

/// Answers with the current exception.
void put_exception(httplib::Response& to) {
  try {
    throw;
  } catch (const HttpError& error) {
    put(error_response(error), /*http_1_0=*/false, to);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bert serve: a request failed: %s\n", error.what());
    put(error_response(HttpError(500, "internal error; the server's standard error has the reason")), false, to);
  }
}

std::string refusal_text() {
  const std::string body = error_response(HttpError(503, "the server has as many connections as it may have")).body;
  return fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\nRetry-After: 1\r\n"
      "Connection: close\r\n\r\n{}",
      body.size(), body);
}

}  // namespace

HttpServer::Impl::Impl(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits,
                       HttpHandler& handler, ConnectionCounts& counts)
    : listener_(std::move(listener)),
      stop_(event()),
      end_(event()),
      max_connections_(max_connections),
      limits_(limits),
      handler_(handler),
      counts_(counts),
      refusal_(refusal_text()) {
  svr_sock_ = listener_.get();  // cpp-httplib sends no body in parts without one
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    exchange_->request.path = request.path;
    return check(response);
  });
  Get(".*", [this](const httplib::Request&, httplib::Response& response) { respond(nullptr, response); });
  Post(".*", [this](const httplib::Request&, httplib::Response& response, const httplib::ContentReader& body) {
    respond(&body, response);
  });
  set_post_routing_handler([this](const httplib::Request&, httplib::Response& response) {
    Exchange& exchange = *exchange_;
    exchange.status = response.status;
    exchange.close = exchange.close || draining_ || exchange.connection.has_unread_body();
    response.headers.erase("Connection");
    response.headers.erase("Keep-Alive");
    response.headers.erase("Accept-Ranges");
    if (exchange.close) response.set_header("Connection", "close");
    response.set_header("X-Content-Type-Options", "nosniff");
  });
  acceptor_ = std::thread([this] { accept_connections(); });
}

void HttpServer::Impl::accept_connections() {
  constexpr int kRest_ms = 100;
  bool stopped = false, told = false;
  while (!stopped) {
    std::array<pollfd, 2> events = {{{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}}};
    if (poll(events.data(), events.size(), -1) < 0) continue;
    stopped = events[1].revents != 0;  // after the connections that have been made
    for (;;) {
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (socket) {
        start(std::move(socket));
        continue;
      }
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
      if (!std::exchange(told, true))
        std::fprintf(stderr, "bert serve: cannot accept a connection: %s; further ones wait\n", std::strerror(errno));
      poll(nullptr, 0, kRest_ms);
      break;
    }
  }
  shutdown(listener_.get(), SHUT_RDWR);  // further clients are refused by the kernel
}

void HttpServer::Impl::start(Descriptor socket) {
  const int on = 1, descriptor = socket.get();
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const bool room = counts_.open < max_connections_;
  if (!room) ++counts_.refused;
  if (!room && refusing_ >= kRefusers) {
    send(descriptor, refusal_.data(), refusal_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return;
  }
  std::atomic<int64_t>& count = room ? counts_.open : refusing_;
  ++count;
  {
    const std::lock_guard lock(mutex_);
    sockets_.insert(descriptor);
  }
  const auto shared = std::make_shared<Descriptor>(std::move(socket));  // a std::function is copyable
  const auto forget = [this, descriptor, &count, shared] {
    const std::lock_guard lock(mutex_);
    sockets_.erase(descriptor);
    shared->reset();
    --count;
    changed_.notify_all();
  };
  try {
    threads_.run([this, room, descriptor, forget] {
      room ? serve(descriptor) : refuse(descriptor);
      forget();
    });
  } catch (const std::system_error&) {  // no further thread
    ++counts_.refused;
    forget();
  }
}

void HttpServer::Impl::refuse(int socket) const {
  send(socket, refusal_.data(), refusal_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  Connection(socket, end_.get(), limits_).linger();
}

void HttpServer::Impl::serve(int socket) {
  Connection connection(socket, end_.get(), limits_);
  bool goes_on = true;
  while (goes_on && connection.wait_for_request()) {
    {
      const std::lock_guard lock(mutex_);
      ++in_flight_;
    }
    goes_on = answer_one(connection);
    const std::lock_guard lock(mutex_);
    --in_flight_;
    changed_.notify_all();
  }
  if (!goes_on) connection.linger();
}

/// Returns true if the connection may have another request.
bool HttpServer::Impl::answer_one(Connection& connection) {
  const auto begin = Connection::Clock::now();
  Exchange exchange{.connection = connection};
  bool goes_on = false;
  try {
    const std::optional<RequestHead> head = connection.read_head();
    if (!head) return false;
    exchange.request.method = head->method;
    exchange.request.authorization = head->authorization;
    exchange.request.content_type = head->content_type;
    exchange.close = head->close;
    exchange.http_1_0 = head->http_1_0;
    exchange.content_length = head->content_length;
    goes_on = answer(connection, exchange);
  } catch (const HttpError& error) {
    connection.replace_head();
    exchange.error = &error;
    exchange.close = true;
    answer(connection, exchange);
  }
  const std::chrono::duration<double> time = Connection::Clock::now() - begin;
  handler_.finished(exchange.error == nullptr ? exchange.request.path : "", exchange.status, time.count());
  return goes_on;
}

bool HttpServer::Impl::answer(Connection& connection, Exchange& exchange) {
  exchange_ = &exchange;
  bool closed = false, written = false;
  try {
    written = process_request(connection, exchange.close, closed, nullptr) && connection.flush();
  } catch (const std::exception& error) {  // of a part of an answer: its begin has been sent
    std::fprintf(stderr, "bert serve: an answer was cut: %s\n", error.what());
  }
  exchange_ = nullptr;
  return written && !exchange.close;
}

httplib::Server::HandlerResponse HttpServer::Impl::check(httplib::Response& response) const {
  const Exchange& exchange = *exchange_;
  try {
    if (exchange.error != nullptr) throw HttpError(*exchange.error);
    handler_.check(exchange.request);
    if (exchange.content_length > limits_.max_body_bytes) throw too_large();
    return HandlerResponse::Unhandled;
  } catch (...) {
    put_exception(response);
    return HandlerResponse::Handled;
  }
}

HttpError HttpServer::Impl::too_large() const {
  return {413, "the body has more than " + std::to_string(limits_.max_body_bytes) + " bytes"};
}

/// Throws HttpError.
void HttpServer::Impl::read_body(const httplib::ContentReader& body, Exchange& exchange) const {
  bool large = false;
  const auto receive = [&](const char* bytes, size_t size) {
    large = exchange.request.body.size() + size > static_cast<size_t>(limits_.max_body_bytes);
    if (!large) exchange.request.body.append(bytes, size);
    return !large;
  };
  if (body(receive) && exchange.connection.end_body()) return;
  if (large || exchange.connection.too_large()) throw too_large();
  if (exchange.connection.timed_out()) throw HttpError(408, "the body did not arrive in time");
  throw HttpError(400, "the body is not as long as the request says, or its chunks are malformed");
}

/// Reads the body, if there is one, and answers.
void HttpServer::Impl::respond(const httplib::ContentReader* body, httplib::Response& response) const {
  Exchange& exchange = *exchange_;
  try {
    if (body != nullptr) read_body(*body, exchange);
    put(handler_.answer(exchange.request), exchange.http_1_0, response);
  } catch (...) {
    put_exception(response);
  }
}

void HttpServer::Impl::stop_accepting() {
  if (!acceptor_.joinable()) return;
  draining_ = true;
  eventfd_write(stop_.get(), 1);
  acceptor_.join();
}

bool HttpServer::Impl::wait_until_answered(Connection::Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return in_flight_ == 0; });
}

void HttpServer::Impl::end() {
  stop_accepting();
  eventfd_write(end_.get(), 1);
  std::unique_lock lock(mutex_);
  for (const int socket : sockets_) shutdown(socket, SHUT_RDWR);
  changed_.wait(lock, [this] { return sockets_.empty(); });
}

HttpServer::HttpServer(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits,
                       HttpHandler& handler, ConnectionCounts& counts)
    : impl_(std::make_unique<Impl>(std::move(listener), max_connections, limits, handler, counts)) {}

HttpServer::~HttpServer() = default;

void HttpServer::stop_accepting() { impl_->stop_accepting(); }

bool HttpServer::wait_until_answered(std::chrono::steady_clock::time_point until) {
  return impl_->wait_until_answered(until);
}

void HttpServer::end() { impl_->end(); }

}  // namespace bert
