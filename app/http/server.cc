#include "app/http/server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/http/connection.h"
#include "app/http/growing_pool.h"
#include "data/io/error.h"

namespace bert {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

}  // namespace

ServerResponse error_response(const HttpError& error) {
  return {
      .status = error.status,
      .body = nlohmann::json{{"error", error.what()}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      .fields = error.fields};
}

class HttpServer::Impl final : public ConnectionOwner {
 public:
  Impl(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits, HttpHandler& handler,
       ConnectionCounts& counts);
  ~Impl() override;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void stop_accepting();
  bool wait_until_answered(Connection::Clock::time_point until);
  void end();

  [[nodiscard]] const ConnectionLimits& limits() const override { return limits_; }
  [[nodiscard]] HttpHandler& handler() const override { return handler_; }
  [[nodiscard]] bool draining() const override { return draining_; }
  void run(std::function<void()> task) override { handlers_->run(std::move(task)); }
  void request_begins() override;
  void request_ends() override;
  void request_refused() override { ++counts_.refused; }

 private:
  void await_connections();
  bool accept_one();
  void start(tcp::socket socket);
  bool end_one_that_waits(bool extra);
  template <class Function>
  void on_thread(Function function);

  const int64_t max_connections_;
  const ConnectionLimits limits_;
  HttpHandler& handler_;
  ConnectionCounts& counts_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t in_flight_ = 0;  // requests that have begun, under the mutex
  // The members below belong to the thread of the sockets.
  asio::io_context sockets_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{sockets_.get_executor()};
  tcp::acceptor listener_{sockets_};
  asio::steady_timer rest_{sockets_};
  bool draining_ = false, warned_ = false;
  std::set<std::shared_ptr<Connection>> connections_, extra_;  // extra_: beyond max_connections
  std::optional<GrowingPool> handlers_{std::in_place};
  std::thread thread_;
};

HttpServer::Impl::Impl(Descriptor listener, int64_t max_connections, const ConnectionLimits& limits,
                       HttpHandler& handler, ConnectionCounts& counts)
    : max_connections_(max_connections), limits_(limits), handler_(handler), counts_(counts) {
  listener_.assign(tcp::v4(), listener.release());
  await_connections();
  thread_ = std::thread([this] { sockets_.run(); });
}

/// Runs `function` on the thread of the sockets, and waits for its end.
template <class Function>
void HttpServer::Impl::on_thread(Function function) {
  std::packaged_task<void()> task(std::move(function));
  std::future<void> done = task.get_future();
  asio::post(sockets_, std::move(task));
  done.get();
}

void HttpServer::Impl::request_begins() {
  const std::lock_guard lock(mutex_);
  ++in_flight_;
}

void HttpServer::Impl::request_ends() {
  const std::lock_guard lock(mutex_);
  --in_flight_;
  changed_.notify_all();
}

void HttpServer::Impl::await_connections() {
  static constexpr std::chrono::milliseconds kRest(100);
  listener_.async_wait(tcp::acceptor::wait_read, [this](boost::system::error_code error) {
    if (error || draining_) return;
    while (accept_one()) continue;
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!full) return await_connections();
    if (!std::exchange(warned_, true))
      std::fprintf(stderr, "bert: cannot accept a connection: %s; further ones wait\n", std::strerror(errno));
    rest_.expires_after(kRest);
    rest_.async_wait([this](boost::system::error_code end) {
      if (!end) await_connections();
    });
  });
}

/// Returns false, and sets errno, if no connection is waiting, or none can be accepted. Asio's own accept would leave the
/// socket open in child processes.
bool HttpServer::Impl::accept_one() {
  for (;;) {
    const int descriptor = accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor >= 0) {
      start(tcp::socket(sockets_, tcp::v4(), descriptor));
      return true;
    }
    const bool of_client = errno == ECONNABORTED || errno == EINTR || errno == EPROTO;  // the next may do
    if (!of_client) return false;
  }
}

/// Ends the connection that has waited longest for its client, if there is one. So clients that send nothing, or a part
/// of a head, keep no other out.
bool HttpServer::Impl::end_one_that_waits(bool extra) {
  const auto& all = extra ? extra_ : connections_;
  const auto found = std::min_element(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return std::pair(a->wait(), a->accepted()) < std::pair(b->wait(), b->accepted());
  });
  if (found == all.end() || (*found)->wait() == Connection::Wait::kServer) return false;
  (*found)->shared_from_this()->close();  // which removes it from the set
  return true;
}

void HttpServer::Impl::start(tcp::socket socket) {
  const int on = 1;
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const bool extra = counts_.open >= max_connections_ && !end_one_that_waits(/*extra=*/false);
  if (extra && std::ssize(extra_) >= kExtraConnections && !end_one_that_waits(/*extra=*/true)) {
    ++counts_.refused;  // all of them are about to end
    return;
  }
  if (!extra) ++counts_.open;
  const auto slot = std::make_shared<std::weak_ptr<Connection>>();
  const auto connection = std::make_shared<Connection>(std::move(socket), *this, extra, [this, extra, slot] {
    if (!extra) --counts_.open;
    (extra ? extra_ : connections_).erase(slot->lock());
  });
  *slot = connection;
  (extra ? extra_ : connections_).insert(connection);
  connection->serve();
}

void HttpServer::Impl::stop_accepting() {
  on_thread([this] {
    if (std::exchange(draining_, true)) return;
    while (accept_one()) continue;
    boost::system::error_code ignored;
    rest_.cancel();
    shutdown(listener_.native_handle(), SHUT_RDWR);  // further clients are refused by the kernel
    listener_.close(ignored);
  });
}

bool HttpServer::Impl::wait_until_answered(Connection::Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return in_flight_ == 0; });
}

void HttpServer::Impl::end() {
  stop_accepting();
  on_thread([this] {
    std::vector<std::shared_ptr<Connection>> all(connections_.begin(), connections_.end());
    all.insert(all.end(), extra_.begin(), extra_.end());
    for (const auto& connection : all) connection->close();
  });
  handlers_.reset();  // waits for them; what they return finds its connection closed
}

HttpServer::Impl::~Impl() {
  end();
  work_.reset();
  thread_.join();
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
