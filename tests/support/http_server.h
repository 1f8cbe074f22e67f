// An HTTP server on 127.0.0.1 that does what a test tells it: also what no good server does.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "data/io/descriptor.h"

namespace bert::testing {

struct HttpQuestion {
  std::string method, target;                  // "GET", "/a/b", or a whole URL to a proxy
  std::map<std::string, std::string> headers;  // names in small letters
  [[nodiscard]] std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  /// The first byte of "Range: bytes=N-"; 0 if none is asked for.
  [[nodiscard]] size_t first_byte() const {
    const std::string range = header("range"), mark = "bytes=";
    return range.starts_with(mark) ? std::stoul(range.substr(mark.size())) : 0;
  }
};

/// The server's side of a connection, which is closed when the handler returns, unless keep() was called.
class HttpAnswer {
 public:
  HttpAnswer(int socket, int end) : socket_(socket), end_(end) {}

  /// The client may send its next request on this connection.
  void keep() const { kept_ = true; }
  [[nodiscard]] bool kept() const { return kept_; }

  void send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return;  // the client has gone
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  /// "HTTP/1.1 200 OK" and the lines of `headers`, each ended by "\r\n".
  void head(int status, const std::string& headers) const {
    send(fmt::format("HTTP/1.1 {} Answer\r\n{}{}\r\n", status, headers, kept_ ? "" : "Connection: close\r\n"));
  }
  void status(int code, const std::string& headers = "") const { head(code, headers + "Content-Length: 0\r\n"); }
  /// Sends nothing more, and waits until the client or the server ends.
  void stall() const {
    pollfd waiting[] = {{socket_, POLLIN | POLLRDHUP, 0}, {end_, POLLIN, 0}};
    static_cast<void>(poll(waiting, 2, -1));
  }

 private:
  int socket_, end_;
  mutable bool kept_ = false;
};

/// Makes this process ask servers themselves.
inline void without_proxies() {
  for (const char* variable : {"http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"})
    unsetenv(variable);
}

/// Answers each request by a call of a function, on threads of its own. Ends with its scope.
class HttpServer {
 public:
  using Handler = std::function<void(const HttpQuestion&, const HttpAnswer&)>;

  explicit HttpServer(Handler handler) : handler_(std::move(handler)), end_(eventfd(0, EFD_CLOEXEC)) {
    without_proxies();
    listener_ = Descriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener_.get(), 64) != 0 ||
        getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no server on 127.0.0.1");
    url_ = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    acceptor_ = std::thread([this] { accept_connections(); });
  }
  ~HttpServer() {
    const uint64_t one = 1;
    static_cast<void>(write(end_.get(), &one, sizeof one) == sizeof one);
    acceptor_.join();
    for (std::thread& connection : connections_) connection.join();
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  [[nodiscard]] const std::string& url() const { return url_; }
  /// The requests so far.
  [[nodiscard]] std::vector<HttpQuestion> questions() const {
    const std::lock_guard lock(mutex_);
    return questions_;
  }

 private:
  void accept_connections() {
    while (true) {
      pollfd waiting[] = {{listener_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
      if (poll(waiting, 2, -1) < 0) continue;
      if (waiting[1].revents != 0) return;
      Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!socket) continue;
      connections_.emplace_back([this, one = std::move(socket)] { serve(one.get()); });
    }
  }

  void serve(int socket) {
    while (serve_one(socket)) {
    }
    shutdown(socket, SHUT_WR);
  }

  /// Returns true if the connection stays open for the next request.
  bool serve_one(int socket) {
    std::string text;
    while (text.find("\r\n\r\n") == std::string::npos) {
      pollfd waiting[] = {{socket, POLLIN, 0}, {end_.get(), POLLIN, 0}};
      if (poll(waiting, 2, -1) < 0) continue;
      char piece[4096];
      const ssize_t got = waiting[1].revents != 0 ? 0 : recv(socket, piece, sizeof piece, 0);
      if (got <= 0) return false;
      text.append(piece, static_cast<size_t>(got));
    }
    HttpQuestion question = parsed(text);
    {
      const std::lock_guard lock(mutex_);
      questions_.push_back(question);
    }
    const HttpAnswer answer(socket, end_.get());
    handler_(question, answer);
    return answer.kept();
  }

  static HttpQuestion parsed(const std::string& text) {
    HttpQuestion question;
    const size_t space = text.find(' ');
    question.method = text.substr(0, space);
    question.target = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    for (size_t at = text.find("\r\n") + 2; text.compare(at, 2, "\r\n") != 0; at = text.find("\r\n", at) + 2) {
      const size_t colon = text.find(": ", at);
      std::string name = text.substr(at, colon - at);
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      question.headers[name] = text.substr(colon + 2, text.find("\r\n", at) - colon - 2);
    }
    return question;
  }

  Handler handler_;
  Descriptor end_, listener_;
  std::string url_;
  mutable std::mutex mutex_;
  std::vector<HttpQuestion> questions_;
  std::vector<std::thread> connections_;  // the acceptor's, until it has ended
  std::thread acceptor_;
};

/// A file as a good server has it.
struct ServedFile {
  std::string content;
  std::string etag = "\"1\"";  // "" for none
  bool ranges = true;
};

/// Answers as RFC 9110 says, with the rest of the file where it is asked for. At most `most` bytes of the body are
/// sent; then the connection is cut.
inline void serve_file(const ServedFile& file, const HttpQuestion& question, const HttpAnswer& answer,
                       size_t most = std::string::npos) {
  const size_t first = question.first_byte(), size = file.content.size();
  const std::string condition = question.header("if-range");
  const std::string etag = file.etag.empty() ? "" : "ETag: " + file.etag + "\r\n";
  const bool part = file.ranges && !question.header("range").empty() && (condition.empty() || condition == file.etag);
  if (part && first >= size) return answer.status(416, fmt::format("Content-Range: bytes */{}\r\n", size));
  const size_t begin = part ? first : 0;
  std::string headers = etag + fmt::format("Content-Length: {}\r\n", size - begin);
  if (part) headers += fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, size - 1, size);
  answer.head(part ? 206 : 200, headers);
  answer.send(std::string_view(file.content).substr(begin, most));
}

}  // namespace bert::testing
