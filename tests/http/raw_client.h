// A client of 127.0.0.1 that sends any bytes.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "data/io/descriptor.h"

namespace bert::testing {

class RawClient {
 public:
  explicit RawClient(int64_t port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      throw std::runtime_error("no connection");
  }

  /// Returns false if the server has closed the connection.
  bool send(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// No more bytes will be sent.
  void finish() const { shutdown(socket_.get(), SHUT_WR); }

  /// Everything until the server closes the connection, or nothing comes for 10 s.
  std::string rest() {
    while (receive()) continue;
    return std::exchange(received_, {});
  }

  /// One answer with Content-Length or without a body: head and body.
  std::string answer() {
    size_t end = std::string::npos;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!receive()) return std::exchange(received_, {});
    }
    size_t size = end + 4;
    const size_t length = received_.find("Content-Length: ");
    if (length < end) size += std::stoul(received_.substr(length + 16));
    while (received_.size() < size && receive()) continue;
    std::string result = received_.substr(0, size);
    received_.erase(0, result.size());
    return result;
  }

  /// The status of the next answer; 0 if the connection ends before.
  int status() {
    const std::string text = answer();
    return text.starts_with("HTTP/1.1 ") ? std::stoi(text.substr(9)) : 0;
  }

  /// True if the server has closed the connection and all has been read.
  bool closed() {
    while (receive()) continue;
    return ended_ && received_.empty();
  }

 private:
  bool receive() {
    constexpr int kPatience_ms = 10'000;
    pollfd waiting{socket_.get(), POLLIN, 0};
    if (poll(&waiting, 1, kPatience_ms) <= 0) return false;
    char piece[4096];
    const ssize_t got = recv(socket_.get(), piece, sizeof piece, 0);
    if (got <= 0) {
      ended_ = true;
      return false;
    }
    received_.append(piece, static_cast<size_t>(got));
    return true;
  }

  Descriptor socket_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace bert::testing
