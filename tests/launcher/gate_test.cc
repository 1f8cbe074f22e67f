// The gate of a job, with clients that break the protocol.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <thread>

// Last, because it includes Catch2.
#include "tests/support/launcher_gate_testing.h"

using namespace bert;
using namespace bert::testing;

TEST_CASE("garbage, other protocols, and silence have no effect", "[unit]") {
  EventLoop loop;
  Host host(loop);
  const Client http(host.port), zeros(host.port), half(host.port), gone(host.port), silent(host.port);
  http.send("GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: some long enough text to fill the greeting\r\n\r\n");
  zeros.send(std::string(1 << 20, '\0'));
  half.send("\x16\x03\x01");  // the beginning of a record of TLS
  { const Client brief(host.port); }
  REQUIRE(run_until(loop, [&] { return host.turned_away("no bertrun's greeting") == 2; }));
  // An agent is admitted meanwhile.
  Agent agent(loop, host.port);
  REQUIRE(run_until(loop, [&] { return agent.ready; }));
  REQUIRE(run_until(loop, [&] { return host.turned_away("closed in the handshake") == 1; }));
  // Silent connections are closed after five seconds.
  REQUIRE(run_until(loop, [&] { return host.turned_away("no handshake within 5 s") == 3; }));
  (void)silent.received();
  CHECK(silent.ended());
  CHECK(run_until(loop, [&] { return host.gate.pending() == 0; }));
}

TEST_CASE("a flood of idle connections crowds out itself only", "[unit]") {
  EventLoop loop;
  Host host(loop);
  std::deque<Client> idle;
  for (int i = 0; i < 600; ++i) {
    idle.emplace_back(host.port);
    loop.run_once();
  }
  CHECK(host.gate.pending() == Gatekeeper::kMostPending);
  CHECK(host.turned_away("too many at once") == 600 - static_cast<int64_t>(Gatekeeper::kMostPending));
  Agent agent(loop, host.port);
  REQUIRE(run_until(loop, [&] { return agent.ready; }));
}

TEST_CASE("of addresses that crowd the gate alike the one that has waited longest goes", "[unit]") {
  EventLoop loop;
  Host host(loop);
  std::deque<Client> clients;
  clients.emplace_back(host.port, "127.9.9.9");
  for (size_t i = 1; i <= Gatekeeper::kMostPending; ++i) {
    clients.emplace_back(host.port, fmt::format("127.1.{}.1", i % 256).c_str());
    REQUIRE(run_until(loop, [&] { return host.gate.pending() + (clients.front().ended() ? 1 : 0) == i + 1; }));
  }
  CHECK(clients.front().ended());
  for (size_t i = 1; i < clients.size(); ++i) CHECK_FALSE(clients[i].ended());
  CHECK(host.gate.take(4711) == nullptr);  // a connection that no longer exists
}

TEST_CASE("a gate that is out of descriptors rests, and goes on when there are some", "[unit]") {
  EventLoop loop;
  Host host(loop);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const Client client(host.port);
  const Descriptor next(dup(0));
  const rlimit none{static_cast<rlim_t>(next.get()), limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  int rounds = 0;
  bool over = false;
  loop.after(0.5, [&] { over = true; });
  for (; !over; ++rounds) loop.run_once();
  const size_t without = host.gate.pending();
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(without == 0);
  CHECK(rounds < 100);
  CHECK(run_until(loop, [&] { return host.gate.pending() == 1; }));
}

TEST_CASE("a gate whose stderr nobody reads drops what it has to say", "[unit]") {
  const pid_t pid = fork();
  if (pid == 0) {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) _exit(1);
    while (write(ends[1], "x", 1) == 1) {
    }
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    EventLoop loop;
    {
      Host host(loop);
      const Client stranger(host.port);
      stranger.send(std::string(100, 'x'));
      run_until(loop, [&] { return host.turned_away("no bertrun's greeting") == 1; });
    }  // the last line about strangers
    _exit(0);
  }
  int status = -1;
  for (int i = 0; i < 500 && waitpid(pid, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  kill(pid, SIGKILL);
  CHECK(status == 0);
}
