// The agents' connection and the gate before it, with clients that do not keep to the rules.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <deque>

#include "app/exit_codes.h"
#include "app/launcher/gatekeeper.h"
#include "app/launcher/job_token.h"
#include "app/launcher/random.h"
#include "app/launcher/secure_channel.h"
#include "app/launcher/store_relay.h"
#include "app/launcher/store_server.h"
#include "data/error.h"
#include "data/files.h"
#include "tests/event_loop_testing.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::run_until;
using bert::testing::TemporaryDirectory;

namespace {

const std::string kToken(32, 't');

/// A gate on loopback, with what it has let in.
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
  std::vector<bool> congested;  // what was told, in turn
  std::vector<Frame> frames;
  std::string why;
  SecureChannel channel;
};

/// A plain blocking client.
class Client {
 public:
  /// `source` is the client's own address.
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
  /// What is there to be read now.
  [[nodiscard]] std::string received() const {
    std::array<char, 65536> buffer{};
    const ssize_t got = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    return {buffer.data(), got > 0 ? static_cast<size_t>(got) : 0};
  }
  /// The other side has closed it.
  [[nodiscard]] bool ended() const {
    char byte = 0;
    const ssize_t got = recv(socket_.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

 private:
  Descriptor socket_;
  bool connected_ = false;
};

/// A proxy between an agent and a host that records, and changes, what passes.
class Wire {
 public:
  Wire(EventLoop& loop, int64_t port) : loop_(loop), port_(port), listener_(listen_on({"127.0.0.1", 0})) {
    loop_.watch(listener_.get(), POLLIN, [this](short) {
      agent_ = Descriptor(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      host_ = start_connect({"127.0.0.1", port_});
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
  std::string to_host, to_agent;  // all that has passed
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
  int64_t port_;
  Descriptor listener_, agent_, host_;
};

}  // namespace

TEST_CASE("HMAC-SHA256 agrees with RFC 4231", "[unit]") {
  CHECK(to_hexadecimal(hmac_sha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(to_hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(
      to_hexadecimal(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")) ==
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(equal_secrets("ab", "ab"));
  CHECK_FALSE(equal_secrets("ab", "aB"));
  CHECK_FALSE(equal_secrets("ab", "abc"));
}

TEST_CASE("two sides with the token exchange frames of every size", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Agent agent(loop, host.port);
  REQUIRE(run_until(loop, [&] { return agent.ready && !host.channels.empty(); }));
  const std::vector<size_t> sizes = {0, 1, 63, 64, 65, 16 << 10, SecureChannel::kLargestPayload};
  for (const size_t size : sizes) agent.channel.send(7, 3, std::string(size, 'x'));
  host.channels.begin()->second->send(9, 0xffffffff, "back");
  REQUIRE(run_until(loop, [&] { return host.frames.size() == sizes.size() && agent.frames.size() == 1; }));
  for (size_t i = 0; i < sizes.size(); ++i) {
    CHECK(host.frames[i].payload == std::string(sizes[i], 'x'));
    CHECK(host.frames[i].type == 7);
    CHECK(host.frames[i].stream == 3);
  }
  CHECK(agent.frames[0].stream == 0xffffffff);
  CHECK(host.gate.turned_away().empty());
  host.channels.clear();
  CHECK(run_until(loop, [&] { return !agent.why.empty(); }));
}

TEST_CASE("a channel says when too much waits to be sent, and when it has gone", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Agent agent(loop, host.port);
  REQUIRE(run_until(loop, [&] { return agent.ready && !host.channels.empty(); }));
  constexpr size_t kFrames = 100;
  static_assert(kFrames * SecureChannel::kLargestPayload > SecureChannel::kHighWater);
  for (size_t i = 0; i < kFrames; ++i) {
    CHECK(agent.congested.empty() == (agent.channel.queued() <= SecureChannel::kHighWater));
    agent.channel.send(7, static_cast<uint32_t>(i), std::string(SecureChannel::kLargestPayload, static_cast<char>(i)));
  }
  CHECK(agent.congested == std::vector<bool>{true});
  REQUIRE(run_until(loop, [&] { return host.frames.size() == kFrames; }));
  CHECK(agent.congested == std::vector<bool>{true, false});
  CHECK(agent.channel.flushed());
  for (size_t i = 0; i < kFrames; ++i) {
    CHECK(host.frames[i].stream == i);
    CHECK(host.frames[i].payload == std::string(SecureChannel::kLargestPayload, static_cast<char>(i)));
  }
}

TEST_CASE("an agent with another token is refused and told so", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Agent agent(loop, host.port, std::string(32, 'u'));
  REQUIRE(run_until(loop, [&] { return !agent.why.empty(); }));
  CHECK(agent.channel.refused());
  CHECK_FALSE(agent.ready);
  CHECK(host.turned_away("wrong token") == 1);
  CHECK(host.channels.empty());
}

TEST_CASE("an agent does not talk to a host that does not know the token", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Wire wire(loop, host.port);
  wire.change_to_agent = [&](std::string& bytes) {
    if (bytes.size() == 33) bytes[5] = static_cast<char>(bytes[5] ^ 1);  // the host's proof
  };
  Agent agent(loop, wire.port());
  REQUIRE(run_until(loop, [&] { return !agent.why.empty(); }));
  CHECK(agent.why == "the host does not know the token");
  CHECK_FALSE(agent.ready);
}

TEST_CASE("garbage, other protocols, and silence have no effect", "[unit]") {
  EventLoop loop;
  Host host(loop);
  const Client http(host.port), zeros(host.port), half(host.port), gone(host.port), silent(host.port);
  http.send("GET / HTTP/1.1\r\nHost: here\r\nUser-Agent: some long enough text to fill the greeting\r\n\r\n");
  zeros.send(std::string(1 << 20, '\0'));
  half.send("bertrun1");
  { const Client brief(host.port); }
  REQUIRE(run_until(loop, [&] { return host.turned_away("no bertrun's greeting") == 2; }));
  // Meanwhile, and after it, an agent comes in.
  Agent agent(loop, host.port);
  REQUIRE(run_until(loop, [&] { return agent.ready; }));
  REQUIRE(run_until(loop, [&] { return host.turned_away("closed in the handshake") == 1; }));
  // The silent ones go after five seconds.
  REQUIRE(run_until(loop, [&] { return host.turned_away("no handshake within 5 s") == 3; }));
  (void)silent.received();
  CHECK(silent.ended());
  CHECK(run_until(loop, [&] { return host.gate.pending() == 0; }));
}

TEST_CASE("what was recorded of one connection is worthless on the next", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Wire wire(loop, host.port);
  Agent agent(loop, wire.port());
  REQUIRE(run_until(loop, [&] { return agent.ready && host.channels.size() == 1; }));
  agent.channel.send(1, 0, "an order");
  REQUIRE(run_until(loop, [&] { return host.frames.size() == 1; }));
  const Client replay(host.port);
  replay.send(wire.to_host);
  REQUIRE(run_until(loop, [&] { return host.turned_away("wrong token") == 1; }));
  CHECK(host.frames.size() == 1);
  CHECK(host.channels.size() == 1);
}

TEST_CASE("a frame that was changed, repeated or left out closes the connection", "[unit]") {
  for (const std::string how : {"changed", "header", "repeated", "left out", "longer"}) {
    CAPTURE(how);
    EventLoop loop;
    Host host(loop);
    Wire wire(loop, host.port);
    Agent agent(loop, wire.port());
    REQUIRE(run_until(loop, [&] { return agent.ready && host.channels.size() == 1; }));
    int passed = 0;
    wire.change_to_host = [&](std::string& bytes) {
      if (passed++ != 1) return;
      if (how == "changed") bytes[14] = static_cast<char>(bytes[14] ^ 1);
      if (how == "header") bytes[4] = 9;
      if (how == "repeated") bytes += bytes;
      if (how == "left out") bytes.clear();
      if (how == "longer") bytes[1] = 1;  // 64 KiB more than it has
    };
    for (int i = 0; i < 3; ++i) {
      agent.channel.send(1, 0, "frame " + std::to_string(i));
      run_until(loop, [&] { return passed == i + 1 || !host.closed.empty(); });
    }
    REQUIRE(run_until(loop, [&] { return !host.closed.empty(); }));
    CHECK(host.closed[0].find(how == "longer" ? "at most 65536" : "wrong MAC") != std::string::npos);
    CHECK(host.frames.size() == (how == "repeated" ? 2U : 1U));
  }
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

TEST_CASE("a relay carries ranks' connections both ways, with bounded memory", "[unit]") {
  EventLoop loop;
  std::deque<std::function<void()>> wire;  // frames under way
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

  // An echo of a megabyte, read only when all of it has been sent.
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
  // While the channel is behind nothing is read; afterwards all of it arrives.
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
  // Both windows, and what the kernel holds of four connections' ends; not without bound.
  CHECK(pushed >= StoreRelay::kWindow);
  CHECK(pushed <= StoreRelay::kWindow + (32 << 20));
  // The store's end of the connection closes the rank's.
  server.reset();
  REQUIRE(step([&] {
    tick();
    while (!rank.received().empty()) {
    }
    return rank.ended();
  }));
  // More than the window allows, and credit for nothing, are against the rules.
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
  CHECK(host.gate.take(4711) == nullptr);  // one that is not there any more
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

TEST_CASE("a token comes from the environment, a private file, or the user's runtime directory", "[unit]") {
  const TemporaryDirectory directory;
  setenv("XDG_RUNTIME_DIR", directory.path().c_str(), 1);
  RendezvousConfig local, remote;
  remote.host = "192.0.2.1";
  const std::string digits(64, 'A');
  setenv(kTokenVariable, digits.c_str(), 1);
  CHECK(JobToken(remote).bytes() == std::string(32, '\xaa'));
  CHECK(std::getenv(kTokenVariable) == nullptr);  // ranks must not get it
  for (const char* bad : {"1234", "zz", ""}) {
    setenv(kTokenVariable, bad, 1);
    CHECK_THROWS(JobToken(remote));
  }
  const std::string path = directory.path("token");
  {
    AtomicFile file(path);
    file.write(digits + "\n");
    file.commit();
  }
  chmod(path.c_str(), 0600);
  setenv(kTokenFileVariable, path.c_str(), 1);
  CHECK(JobToken(remote).bytes() == std::string(32, '\xaa'));
  std::filesystem::create_symlink(path, directory.path("link"));
  setenv(kTokenFileVariable, directory.path("link").c_str(), 1);
  CHECK_THROWS_WITH(JobToken(remote), bert::testing::Contains("is a symbolic link"));
  setenv(kTokenFileVariable, directory.path().c_str(), 1);
  CHECK_THROWS_WITH(JobToken(remote), bert::testing::Contains("is not a regular file"));
  chmod(path.c_str(), 0640);
  setenv(kTokenFileVariable, path.c_str(), 1);
  CHECK_THROWS_AS(JobToken(remote), RefusedError);
  CHECK_THROWS_WITH(JobToken(remote), bert::testing::Contains("BERTRUN_TOKEN_FILE"));
  // On loopback the first makes one, and all others of this id and port get it.
  std::string made;
  {
    const JobToken first(local), second(local);
    made = first.bytes();
    CHECK(made.size() == 32);
    CHECK(second.bytes() == made);
    RendezvousConfig other = local;
    other.id = "another job";
    CHECK(JobToken(other).bytes() != made);
    CHECK(JobToken(local).bytes() == made);  // and again, now that one agent has gone
  }
  // With the last agent the file goes. A file that one has left which was killed is not used again.
  CHECK(std::filesystem::is_empty(directory.path("bertrun")));
  const pid_t agent = fork();
  if (agent == 0) {
    const JobToken left(local);
    _exit(0);
  }
  waitpid(agent, nullptr, 0);
  REQUIRE(std::distance(std::filesystem::directory_iterator(directory.path("bertrun")), {}) == 1);
  const std::string file = std::filesystem::directory_iterator(directory.path("bertrun"))->path();
  const std::string left = read_file(file);
  const JobToken next(local);
  CHECK(read_file(file) != left);
  CHECK(to_hexadecimal(next.bytes()) == read_file(file));
  struct stat state {};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory.path("bertrun"))) {
    REQUIRE(stat(entry.path().c_str(), &state) == 0);
    CHECK((state.st_mode & 077) == 0);
  }
  chmod(directory.path("bertrun").c_str(), 0755);
  CHECK_THROWS_AS(JobToken(local), RefusedError);
  setenv("XDG_RUNTIME_DIR", directory.path("absent").c_str(), 1);  // as after su, or in a batch job: then it is /tmp
  CHECK(JobToken(local).bytes().size() == 32);
  unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("a store that cannot be served is an error when somebody connects, and not before", "[unit]") {
  // There is no libbert.so beside this test.
  EventLoop loop;
  std::string why;
  StoreServer store(loop, {"127.0.0.1", 0}, [&](const std::string& reason) { why = reason; });
  const auto settle = [&](const std::function<bool()>& condition) {
    return run_until(loop, [&] {
      store.reap();
      loop.after(0.01, [] {});
      return condition();
    });
  };
  for (const int64_t ranks : {2, 1}) {  // with several it is started at once, with one on demand
    CAPTURE(ranks);
    why.clear();
    store.start_round(ranks);
    for (int i = 0; i < 20; ++i) settle([] { return true; });
    CHECK(why.empty());
    const Client rank(store.endpoint().port);
    REQUIRE(settle([&] { return !why.empty(); }));
    CHECK(why.find("cannot load LibTorch") != std::string::npos);
  }
}

TEST_CASE("a store listens on loopback alone, and on another port when its own is taken", "[unit]") {
  EventLoop loop;
  StoreServer first(loop, {"127.0.0.1", 0}, [](const std::string&) {});
  const StoreServer second(loop, first.endpoint(), [](const std::string&) {});
  CHECK(second.endpoint().port != first.endpoint().port);
  const std::string table = read_file("/proc/net/tcp");
  std::string local = fmt::format("0100007F:{:04X}", first.endpoint().port);  // 127.0.0.1 in the host's byte order
  CHECK(table.find(local + " 00000000:0000 0A") != std::string::npos);
  CHECK(table.find(fmt::format("00000000:{:04X} 00000000:0000 0A", first.endpoint().port)) == std::string::npos);
}
