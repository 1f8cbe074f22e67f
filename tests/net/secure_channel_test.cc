// The connection between agents: its handshake, its frames, and an attacker between the two.
#include "app/launcher/settings/job_token.h"
#include "app/system/crypto.h"
#include "tests/support/wire_testing.h"
// Last, because it includes Catch2.
#include "tests/support/launcher_gate_testing.h"

using namespace bert;
using namespace bert::testing;

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

TEST_CASE("a refusal counts if it answers this agent, and not if it is a byte by chance", "[unit]") {
  // Each change of the host's 33 bytes: the first byte says no, the others prove that a bertrun says so.
  for (const size_t changed : {size_t{0}, size_t{1}, size_t{32}}) {
    CAPTURE(changed);
    EventLoop loop;
    Host host(loop);
    Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
    wire.change_to_agent = [&](std::string& bytes) {
      if (bytes.size() == 33) bytes[changed] = static_cast<char>(bytes[changed] ^ 2);
    };
    Agent agent(loop, wire.port(), std::string(32, 'u'));
    REQUIRE(run_until(loop, [&] { return !agent.why.empty(); }));
    CHECK_FALSE(agent.channel.refused());
    CHECK(agent.why.find("no bertrun") != std::string::npos);
  }
}

TEST_CASE("an agent does not talk to a host that does not know the token", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
  wire.change_to_agent = [&](std::string& bytes) {
    if (bytes.size() == 33) bytes[5] = static_cast<char>(bytes[5] ^ 1);  // the host's proof
  };
  Agent agent(loop, wire.port());
  REQUIRE(run_until(loop, [&] { return !agent.why.empty(); }));
  CHECK(agent.why == "the host does not know the token");
  CHECK_FALSE(agent.ready);
}

TEST_CASE("what was recorded of one connection is worthless on the next", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
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
    Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
    Agent agent(loop, wire.port());
    REQUIRE(run_until(loop, [&] { return agent.ready && host.channels.size() == 1; }));
    int passed = 0;
    wire.change_to_host = [&](std::string& bytes) {
      if (passed++ != 1) return;
      if (how == "changed") bytes[14] = static_cast<char>(bytes[14] ^ 1);
      if (how == "header") bytes[4] = 9;
      if (how == "repeated") bytes += bytes;
      if (how == "left out") bytes.clear();
      if (how == "longer") bytes[1] = 1;  // claims 64 KiB more than the frame has
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
