// Requests to a store, and a client that sends them without waiting. Include this file last, in place of
// tests/testing.h.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/io/descriptor.h"
#include "tests/testing.h"

namespace bert::testing {

// The numbers of the requests, from PyTorch 2.11's TCPStoreBackend.hpp.
enum StoreRequestType : uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kGetNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
};

template <class Number>
std::string bytes_of(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof number};
}

/// A key or a value: its length and its bytes.
inline std::string sized(std::string_view text) { return bytes_of(uint64_t{text.size()}).append(text); }

/// A request: its type and its fields, which are bytes already.
inline std::string request(StoreRequestType type, const std::vector<std::string>& fields = {}) {
  std::string bytes(1, static_cast<char>(type));
  for (const std::string& field : fields) bytes += field;
  return bytes;
}

/// A request for several keys.
inline std::string keys_request(StoreRequestType type, const std::vector<std::string>& keys) {
  std::string bytes = request(type, {bytes_of(uint64_t{keys.size()})});
  for (const std::string& key : keys) bytes += sized(key);
  return bytes;
}

inline const std::string kHello = request(kValidate, {bytes_of(uint32_t{0x3C85F7CE})});

/// A connection to a store on 127.0.0.1.
class StoreClient {
 public:
  explicit StoreClient(int64_t port, const std::string& hello = kHello)
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    send(hello);
  }
  /// Sends as much as the socket takes. Returns the number of bytes.
  size_t send(std::string_view bytes) const {
    const ssize_t sent = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return sent > 0 ? static_cast<size_t>(sent) : 0;
  }
  /// Reads what has come into `received`. Returns its size.
  size_t receive() {
    std::array<char, 65536> buffer{};
    for (;;) {
      const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) ended = true;
      if (got <= 0) return received.size();
      received.append(buffer.data(), static_cast<size_t>(got));
    }
  }
  [[nodiscard]] bool connected() const { return connected_; }
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  void close() { socket_.reset(); }
  std::string received;
  bool ended = false;  // the store has closed the connection

 private:
  Descriptor socket_;
  bool connected_ = false;
};

}  // namespace bert::testing
