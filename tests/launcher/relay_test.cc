// The way to the job's store: the relay and the ports.
#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <deque>

#include "app/launcher/store/store_relay.h"
#include "app/launcher/store/store_server.h"
#include "data/io/files.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_gate_testing.h"

using namespace bert;
using namespace bert::testing;

TEST_CASE("a relay carries ranks' connections both ways, with bounded memory", "[unit]") {
  EventLoop loop;
  std::deque<std::function<void()>> wire;  // frames on their way
  std::unique_ptr<StoreRelay> at_rank, at_store;
  size_t largest = 0;
  std::string wrong;
  const auto carry = [&](std::unique_ptr<StoreRelay>& to) {
    return [&](uint8_t type, uint32_t stream, std::string_view payload) {
      wire.push_back([&, frame = Frame{type, stream, std::string(payload)}] {
        if (wrong.empty()) wrong = to->take(frame);
      });
      size_t under_way = wire.size();
      largest = std::max(largest, under_way);
    };
  };
  at_rank = std::make_unique<StoreRelay>(loop, carry(at_store));
  at_store = std::make_unique<StoreRelay>(loop, carry(at_rank));
  const Descriptor store = listen_on({"127.0.0.1", 0});
  at_store->set_target({"127.0.0.1", port_of(store.get())});
  const Descriptor local = listen_on({"127.0.0.1", 0});
  const auto step = [&](const std::function<bool()>& condition) {
    return run_until(loop, [&] {
      for (auto pending = std::exchange(wire, {}); !pending.empty(); pending.pop_front()) pending.front()();
      return condition();
    });
  };
  const auto tick = [&] { loop.after(0.001, [] {}); };

  // Echo of one megabyte, read only after all of it has been sent.
  Client rank(port_of(local.get()));
  at_rank->connected(Descriptor(accept4(local.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
  Descriptor server;
  REQUIRE(step([&] {
    tick();
    if (!server) server = Descriptor(accept4(store.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    return static_cast<bool>(server);
  }));
  std::string sent, got;
  for (int i = 0; i < 1 << 20; ++i) sent += static_cast<char>(i * 7 + i / 1000);
  size_t given = 0;
  std::string echo;
  REQUIRE(step([&] {
    tick();
    if (given < sent.size()) {
      const size_t chunk = std::min<size_t>(4096, sent.size() - given);
      rank.send(sent.substr(given, chunk));
      given += chunk;
    }
    std::array<char, 65536> buffer{};
    const ssize_t read = recv(server.get(), buffer.data(), buffer.size(), 0);
    if (read > 0) echo.append(buffer.data(), static_cast<size_t>(read));
    const ssize_t written = echo.empty() ? 0 : send(server.get(), echo.data(), echo.size(), MSG_NOSIGNAL);
    if (written > 0) echo.erase(0, static_cast<size_t>(written));
    got += rank.received();
    return got.size() == sent.size();
  }));
  CHECK(got == sent);
  CHECK(wrong.empty());
  // While the channel is behind, nothing is read. Later all bytes arrive.
  at_rank->hold(true);
  rank.send("held");
  int ticks = 0;
  REQUIRE(step([&] {
    tick();
    return ++ticks >= 20;
  }));
  std::array<char, 8> held{};
  CHECK(recv(server.get(), held.data(), held.size(), 0) == -1);
  at_rank->hold(false);
  ssize_t arrived = 0;
  REQUIRE(step([&] {
    tick();
    if (arrived <= 0) arrived = recv(server.get(), held.data(), held.size(), 0);
    return arrived == 4;
  }));
  CHECK(std::string(held.data()) == "held");
  // Bytes that nobody reads stop at the window.
  size_t pushed = 0;
  const std::string block(64 << 10, 'b');
  step([&] {
    tick();
    const ssize_t written = send(server.get(), block.data(), block.size(), MSG_NOSIGNAL);
    pushed += written > 0 ? static_cast<size_t>(written) : 0;
    return written < 0 && wire.empty();
  });
  CHECK(largest <= StoreRelay::kWindow / 1024);
  // The total is at most both windows and the kernel's buffers at the ends of four connections.
  CHECK(pushed >= StoreRelay::kWindow);
  CHECK(pushed <= StoreRelay::kWindow + (32 << 20));
  // When the store closes its connection, the rank's connection closes too.
  server.reset();
  REQUIRE(step([&] {
    tick();
    while (!rank.received().empty()) {
    }
    return rank.ended();
  }));
  // A frame beyond the window and unearned credit break the protocol.
  at_store->close_all();
  CHECK(at_store->take({kOpenFrame, 50, ""}).empty());
  CHECK(at_store->take({kOpenFrame, 50, ""}).find("opened twice") != std::string::npos);
  CHECK(at_store->take({kCreditFrame, 50, std::string("\0\0\0\1", 4)}).find("credit") != std::string::npos);
  std::string answer;
  for (int i = 0; i < 5 && answer.empty(); ++i) answer = at_store->take({kDataFrame, 50, std::string(64 << 10, 'x')});
  CHECK(answer == "more bytes than were allowed");
  CHECK(at_store->take({99, 50, ""}).find("unknown type") != std::string::npos);
  CHECK(at_store->take({kDataFrame, 51, "for a stream that is gone"}).empty());
  CHECK(at_rank->take({kOpenFrame, 1, ""}).find("towards the agent") != std::string::npos);
}

TEST_CASE("a port that is reserved goes to who asks for it, and to nobody else", "[unit]") {
  const Descriptor reserved = reserve_port("127.0.0.1");
  const int64_t port = port_of(reserved.get());
  std::vector<Descriptor> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(listen_on({"127.0.0.1", 0}));
    CHECK(port_of(others.back().get()) != port);
  }
  CHECK_NOTHROW(listen_on({"127.0.0.1", port}));
}

TEST_CASE("a store listens on loopback alone, and on another port when its own is taken", "[unit]") {
  EventLoop loop;
  StoreServer first(loop, {"127.0.0.1", 0});
  const StoreServer second(loop, first.endpoint());
  CHECK(second.endpoint().port != first.endpoint().port);
  const std::string table = read_file("/proc/net/tcp");
  std::string local = fmt::format("0100007F:{:04X}", first.endpoint().port);  // 127.0.0.1 in the host's byte order
  CHECK(table.find(local + " 00000000:0000 0A") != std::string::npos);
  CHECK(table.find(fmt::format("00000000:{:04X} 00000000:0000 0A", first.endpoint().port)) == std::string::npos);
}
