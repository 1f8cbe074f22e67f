// A gate on loopback, an agent, and a client that breaks the protocol. Include this file last, in place of
// tests/testing.h.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "app/net/gatekeeper.h"
#include "app/net/secure_channel.h"
#include "app/net/socket.h"
#include "tests/support/event_loop_testing.h"
#include "tests/testing.h"

namespace bert::testing {

inline const std::string kToken(32, 't');

/// A gate on loopback, and the connections that it has admitted.
struct Host {
  explicit Host(EventLoop& on) : loop(on), gate(on, open(), kToken, events()) {}
  Descriptor open() {
    Descriptor listener = listen_on({"127.0.0.1", 0});
    port = port_of(listener.get());
    return listener;
  }
  Gatekeeper::Events events() {
    return {[this](uint64_t id) { loop.after(0, [this, id] { channels[id] = gate.take(id); }); },
            [this](uint64_t, const Frame& frame) { frames.push_back(frame); },
            [this](uint64_t, const std::string& why) { closed.push_back(why); }};
  }
  [[nodiscard]] int64_t turned_away(const std::string& reason) const {
    const auto found = gate.turned_away().find(reason);
    return found != gate.turned_away().end() ? found->second : 0;
  }
  EventLoop& loop;
  int64_t port = 0;
  std::map<uint64_t, std::unique_ptr<SecureChannel>> channels;
  std::vector<Frame> frames;
  std::vector<std::string> closed;
  Gatekeeper gate;
};

struct Agent {
  Agent(EventLoop& loop, int64_t port, const std::string& token = kToken)
      : channel(loop, start_connect({"127.0.0.1", port}), SecureChannel::Role::kAgent, token,
                {[this] { ready = true; }, [this](const Frame& frame) { frames.push_back(frame); },
                 [this](const std::string& reason) { why = reason; }, [this](bool on) { congested.push_back(on); }}) {}
  bool ready = false;
  std::vector<bool> congested;  // all events in their order
  std::vector<Frame> frames;
  std::string why;
  SecureChannel channel;
};

/// A plain blocking client.
class Client {
 public:
  /// `source`: address of the client's own end.
  explicit Client(int64_t port, const char* source = "127.0.0.1")
      : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = inet_addr(source);
    REQUIRE(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  void send(const std::string& bytes) const { ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /// The bytes that can be read now.
  [[nodiscard]] std::string received() const {
    std::array<char, 65536> buffer{};
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return {buffer.data(), got > 0 ? static_cast<size_t>(got) : 0};
  }
  /// True if the other side has closed the connection.
  [[nodiscard]] bool ended() const {
    char byte = 0;
    const ssize_t got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  Descriptor socket_;
  bool connected_ = false;
};

}  // namespace bert::testing
