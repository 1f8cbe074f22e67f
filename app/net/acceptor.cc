#include "app/net/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "app/net/socket.h"

namespace bert {

Acceptor::Acceptor(EventLoop& loop, Descriptor listener, std::function<void(Descriptor)> accepted)
    : loop_(loop), listener_(std::move(listener)), accepted_(std::move(accepted)) {
  loop_.watch(listener_.get(), POLLIN, [this](short) { accept_some(); });
}

Acceptor::~Acceptor() {
  if (rest_timer_) loop_.cancel(*rest_timer_);
  loop_.unwatch(listener_.get());
}

int64_t Acceptor::port() const { return port_of(listener_.get()); }

void Acceptor::accept_some() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) rest();
      return;
    }
    accepted_(std::move(connection));
  }
}

/// Stops watching the listener for a moment. It stays readable, so poll would not wait any more.
void Acceptor::rest() {
  constexpr double kRest_seconds = 0.1;
  loop_.set_events(listener_.get(), 0);
  rest_timer_ = loop_.after(kRest_seconds, [this] {
    rest_timer_.reset();
    loop_.set_events(listener_.get(), POLLIN);
  });
}

}  // namespace bert
