#include "app/net/acceptor.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "app/net/socket.h"
#include "app/system/console.h"

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

void Acceptor::set_open(bool open) {
  open_ = open;
  update();
}

void Acceptor::update() { loop_.set_events(listener_.get(), open_ && !rest_timer_ ? POLLIN : 0); }

void Acceptor::accept_some() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce && open_; ++i) {
    Descriptor connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) rest(errno);
      return;
    }
    accepted_(std::move(connection));
  }
}

/// Stops watching the listener for a moment. It stays readable, so the loop would not wait any more.
void Acceptor::rest(int error) {
  constexpr double kRest_seconds = 0.1;
  rest_timer_ = loop_.after(kRest_seconds, [this] {
    rest_timer_.reset();
    update();
  });
  update();
  if (rested_) return;
  rested_ = true;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  say(
      fmt::format("connections to port {} have to wait: {}; this process may open {} descriptors, and its hard limit "
                  "(ulimit -Hn) is {}",
                  port(), std::strerror(error), limit.rlim_cur, limit.rlim_max));
}

}  // namespace bert
