// An attacker between an agent and the host of its job.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <functional>
#include <string>
#include <utility>

#include "app/net/event_loop.h"
#include "app/net/socket.h"
#include "data/io/descriptor.h"

namespace bert::testing {

/// A proxy between one agent and its host. It records and changes the bytes that pass.
class Wire {
 public:
  /// `here`: address on which it waits for the agent. `there`: address of the host.
  Wire(EventLoop& loop, const Endpoint& here, Endpoint there)
      : loop_(loop), there_(std::move(there)), listener_(listen_on(here)) {
    loop_.watch(listener_.get(), POLLIN, [this](short) {
      agent_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      const int on = 1;  // else small frames would wait for each other
      setsockopt(agent_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      host_ = start_connect(there_);
      loop_.unwatch(listener_.get());
      pass(agent_, host_, to_host, change_to_host);
      pass(host_, agent_, to_agent, change_to_agent);
    });
  }
  ~Wire() {
    for (const Descriptor* each : {&listener_, &agent_, &host_}) {
      if (*each) loop_.unwatch(each->get());
    }
  }
  [[nodiscard]] int64_t port() const { return port_of(listener_.get()); }
  std::string to_host, to_agent;  // all bytes that have passed
  std::function<void(std::string&)> change_to_host = [](std::string&) {}, change_to_agent = change_to_host;

 private:
  void pass(const Descriptor& from, const Descriptor& to, std::string& record,
            std::function<void(std::string&)>& change) {
    loop_.watch(from.get(), POLLIN, [&](short) {
      std::array<char, 65536> buffer{};
      const ssize_t got = recv(from.get(), buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        loop_.unwatch(from.get());
        shutdown(to.get(), SHUT_RDWR);
        return;
      }
      std::string bytes(buffer.data(), static_cast<size_t>(got));
      change(bytes);
      record += bytes;
      ::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    });
  }
  EventLoop& loop_;
  const Endpoint there_;
  Descriptor listener_, agent_, host_;
};

}  // namespace bert::testing
