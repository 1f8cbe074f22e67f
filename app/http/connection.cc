#include "app/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <utility>

#include "app/http/inflate.h"

namespace bert {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::error_code;
using Clock = Connection::Clock;

constexpr std::string_view kHeadEnd = "\r\n\r\n";
constexpr size_t kReadBytes = 16 << 10, kMostWaitingBytes = 64 << 10;
constexpr std::chrono::seconds kLingerTime(2);
constexpr size_t kMostLingeringBytes = size_t{64} << 20;

Clock::time_point after(std::chrono::duration<double> time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

/// The path of a target: without the query, and with the bytes that %XX stands for. Any other % stays.
std::string path_of(std::string_view target) {
  target = target.substr(0, target.find_first_of("?#"));
  std::string path;
  for (size_t i = 0; i < target.size(); ++i) {
    unsigned char byte = 0;
    const char* digits = target.data() + i + 1;
    if (target[i] == '%' && i + 2 < target.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      path += static_cast<char>(byte);
      i += 2;
    } else {
      path += target[i];
    }
  }
  return path;
}

HttpError too_large(const ConnectionLimits& limits) {
  return {413, "the body has more than " + std::to_string(limits.max_body_bytes) + " bytes"};
}

/// The answer to the current exception.
ServerResponse exception_response(const HttpHandler& handler, const ServerRequest& request) {
  try {
    throw;
  } catch (const HttpError& error) {
    return handler.refusal(request, error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bert: a request failed: %s\n", error.what());
    return handler.refusal(request, HttpError(500, "internal error; the server's standard error has the reason"));
  }
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, ConnectionOwner& owner, bool is_extra,
                       std::function<void()> closed)
    : socket_(std::move(socket)),
      timer_(socket_.get_executor()),
      owner_(owner),
      closed_(std::move(closed)),
      buffer_(kMostWaitingBytes),
      is_extra_(is_extra) {}

void Connection::close() {
  if (!socket_.is_open()) return;
  error_code ignored;
  timer_.cancel();
  socket_.close(ignored);
  if (std::exchange(requested_, false)) owner_.request_ends();
  closed_();
}

std::string_view Connection::waiting() const {
  return {static_cast<const char*>(buffer_.data().data()), buffer_.size()};
}

/// Ends the operation that begins now, if it lasts until `until`.
void Connection::limit(Clock::time_point until) {
  timed_out_ = false;
  timer_.expires_at(until);
  timer_.async_wait([self = shared_from_this()](error_code error) {
    if (error || self->timer_.expiry() > Clock::now() || !self->socket_.is_open()) return;
    self->timed_out_ = true;
    self->socket_.cancel(error);
  });
}

/// Takes what the client sends until `until`, then calls `then`.
void Connection::receive(Clock::time_point until, Completion then) {
  limit(until);
  socket_.async_read_some(buffer_.prepare(std::min(kReadBytes, buffer_.max_size() - buffer_.size())),
                          [self = shared_from_this(), then](error_code error, size_t size) {
                            self->buffer_.commit(size);
                            if (self->socket_.is_open()) (self.get()->*then)(error);
                          });
}

/// Sends `bytes`, then calls `then`. Ends the request if the client does not take them in time.
void Connection::write(std::string bytes, Step then) {
  if (!answer_deadline_) answer_deadline_ = after(owner_.limits().request);
  out_ = std::move(bytes);
  sent_ = 0;
  then_ = then;
  write_rest();
}

void Connection::write_rest() {
  limit(std::min(after(owner_.limits().read), *answer_deadline_));
  socket_.async_write_some(asio::buffer(out_.data() + sent_, out_.size() - sent_),
                           [self = shared_from_this()](error_code error, size_t size) {
                             if (!self->socket_.is_open()) return;
                             self->sent_ += size;
                             if (error) {
                               self->close_ = true;
                               self->end_request();
                             } else if (self->sent_ < self->out_.size()) {
                               self->write_rest();
                             } else {
                               (self.get()->*self->then_)();
                             }
                           });
}

/// Runs `task` on a thread of the handlers, and what it returns on this one.
void Connection::run(std::function<std::function<void()>()> task) {
  owner_.run([self = shared_from_this(), task = std::move(task)]() mutable {
    std::function<void()> result = task();
    asio::post(self->socket_.get_executor(), [self, result = std::move(result)] {
      if (self->socket_.is_open()) result();
    });
  });
}

void Connection::await_request() {
  if (buffer_.size() == 0) buffer_.shrink_to_fit();  // a silent connection has no buffer
  const auto begin = [self = shared_from_this()](error_code error) {
    if (!self->socket_.is_open()) return;
    if (error) return self->close();  // silent, or gone
    self->requested_ = true;
    self->owner_.request_begins();
    self->begin_ = Clock::now();
    self->head_deadline_ = after(self->owner_.limits().read);
    self->body_deadline_ = after(self->owner_.limits().request);
    self->searched_ = 0;
    self->parser_.emplace();
    self->request_ = {};
    self->head_ = {};
    self->status_ = 0;
    self->close_ = false;
    self->next_part_ = nullptr;
    self->answer_deadline_.reset();
    self->read_head();
  };
  if (buffer_.size() > 0) return begin({});
  limit(after(owner_.limits().read));
  socket_.async_wait(asio::ip::tcp::socket::wait_read, begin);
}

void Connection::read_head() {
  const size_t end = waiting().find(kHeadEnd, searched_);
  const size_t size = end == std::string_view::npos ? buffer_.size() : end + kHeadEnd.size();
  if (size > kMaxHeadBytes) {
    send_error({431, "the head of the request has more than " + std::to_string(kMaxHeadBytes) + " bytes"});
  } else if (end != std::string_view::npos) {
    take_head(size);
  } else {
    searched_ = size - std::min(size, kHeadEnd.size() - 1);
    receive(head_deadline_, &Connection::head_bytes);
  }
}

void Connection::head_bytes(error_code error) {
  if (!error) return read_head();
  if (timed_out_) return send_error({408, "the head of the request did not arrive in time"});
  requested_ = false;
  owner_.request_ends();
  linger();
}

void Connection::take_head(size_t size) {
  const ConnectionLimits& limits = owner_.limits();
  try {
    head_ = parse_request_head(waiting().substr(0, size), *parser_);
  } catch (const HttpError& error) {
    return send_error(error);
  }
  buffer_.consume(size);
  request_.method = head_.method;
  request_.path = path_of(head_.target);
  request_.host = head_.host;
  request_.origin = head_.origin;
  request_.fetch_site = head_.fetch_site;
  request_.authorization = head_.authorization;
  request_.content_type = head_.content_type;
  request_.json_bytes = head_.json_bytes;
  close_ = head_.close || is_extra_;
  const bool takes_body = head_.method != "GET" && head_.method != "HEAD";
  try {
    owner_.handler().check(request_);
    if (is_extra_ && !owner_.handler().answers_when_full(request_)) {
      owner_.request_refused();
      throw HttpError(503, "the server has as many connections as it may have", {{"Retry-After", "1"}});
    }
    if (head_.content_length > limits.max_body_bytes) throw too_large(limits);
  } catch (...) {
    return send(exception_response(owner_.handler(), request_));
  }
  if (!takes_body || parser_->is_done()) return ask();
  parser_->body_limit(static_cast<uint64_t>(limits.max_body_bytes));
  if (head_.expects_continue && buffer_.size() == 0)
    return write("HTTP/1.1 100 Continue\r\n\r\n", &Connection::read_body);
  read_body();
}

void Connection::read_body() {
  wait_ = Wait::kBody;
  limit(std::min(after(owner_.limits().read), body_deadline_));
  http::async_read_some(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
    if (self->socket_.is_open()) self->body_arrived(error);
  });
}

void Connection::body_arrived(error_code error) {
  answer_deadline_.reset();  // 100 Continue was no answer
  if (!error) return parser_->is_done() ? ask() : read_body();
  close_ = true;
  if (timed_out_) return refuse({408, "the body did not arrive in time"});
  if (error == http::error::body_limit || error == http::error::buffer_overflow)
    return refuse(too_large(owner_.limits()));
  refuse({400, "the body is not as long as the request says, or its chunks are malformed"});
}

void Connection::ask() {
  wait_ = Wait::kServer;
  request_.body = std::move(parser_->get().body());
  const auto task = [this]() -> std::function<void()> {
    ServerResponse response;
    try {
      if (head_.compressed && !request_.body.empty())
        request_.body = inflated(request_.body, owner_.limits().max_body_bytes);
      response = owner_.handler().answer(request_);
    } catch (...) {
      response = exception_response(owner_.handler(), request_);
    }
    return [this, response = std::move(response)]() mutable { send(std::move(response)); };
  };
  try {
    run(task);
  } catch (const std::system_error&) {
    refuse({503, "the server has no thread for this request", {{"Retry-After", "1"}}});
  }
}

/// Refuses a request whose head could not be read.
void Connection::send_error(const HttpError& error) {
  request_.path.clear();
  head_.close = close_ = true;
  refuse(error);
}

void Connection::refuse(const HttpError& error) { send(owner_.handler().refusal(request_, error)); }

void Connection::send(ServerResponse response) {
  wait_ = Wait::kServer;
  status_ = response.status;
  next_part_ = std::move(response.next_part);
  const bool unread = !parser_->is_done() && (head_.chunked || head_.content_length > 0);
  close_ = close_ || unread || owner_.draining();
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\n", status_,
                  std::string(http::obsolete_reason(http::int_to_status(static_cast<unsigned>(status_)))));
  for (const auto& [name, value] : response.fields) text += name + ": " + value + "\r\n";
  if (!response.content_type.empty()) text += "Content-Type: " + response.content_type + "\r\n";
  if (next_part_ == nullptr) text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  if (next_part_ != nullptr && !head_.http_1_0) text += "Transfer-Encoding: chunked\r\n";
  if (close_) text += "Connection: close\r\n";
  text += "X-Content-Type-Options: nosniff\r\n\r\n";
  const bool bodiless = head_.method == "HEAD";
  if (!bodiless) text += response.body;
  write(std::move(text), next_part_ == nullptr || bodiless ? &Connection::end_request : &Connection::ask_for_part);
}

void Connection::ask_for_part() {
  const auto task = [this]() -> std::function<void()> {
    try {
      return [this, part = next_part_()] { send_part(part); };
    } catch (const std::exception& error) {  // the begin of the answer has been sent
      std::fprintf(stderr, "bert: an answer was cut: %s\n", error.what());
      return [this] {
        close_ = true;
        end_request();
      };
    }
  };
  try {
    run(task);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "bert: an answer was cut: %s\n", error.what());
    close_ = true;
    end_request();
  }
}

void Connection::send_part(const std::string& part) {
  const bool last = part.empty();
  if (last && head_.http_1_0) return end_request();
  write(head_.http_1_0 ? part : fmt::format("{:x}\r\n{}\r\n", part.size(), part),
        last ? &Connection::end_request : &Connection::ask_for_part);
}

void Connection::end_request() {
  const std::chrono::duration<double> time = Clock::now() - begin_;
  next_part_ = nullptr;
  if (std::exchange(requested_, false)) {
    owner_.handler().finished(request_.path, status_, time.count());
    owner_.request_ends();
  }
  wait_ = Wait::kNextHead;
  close_ ? linger() : await_request();
}

/// Takes what the client still sends, for a short while, so that it gets to read the answer: a socket that is closed
/// with unread bytes is reset, and the client may lose the answer.
void Connection::linger() {
  error_code error;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, error);
  linger_deadline_ = after(kLingerTime);
  lingering_bytes({});
}

void Connection::lingering_bytes(error_code error) {
  lingered_ += buffer_.size();
  buffer_.clear();
  if (error || lingered_ > kMostLingeringBytes || Clock::now() > linger_deadline_) return close();
  receive(linger_deadline_, &Connection::lingering_bytes);
}

}  // namespace bert
