// The connection between agents: its handshake, its frames, and an attacker between the two.
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <poll.h>

#include <memory>
#include <thread>

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

TEST_CASE("a program of another kind that answers is no refusal", "[unit]") {
  for (const std::string answer : {"HTTP/1.1 400 Bad Request\r\n\r\n", "220 mail ready\r\n"}) {
    EventLoop loop;
    Host host(loop);
    Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
    wire.change_to_agent = [&](std::string& bytes) { bytes = answer; };
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
  wire.change_to_agent = [&](std::string& bytes) { bytes.back() = static_cast<char>(bytes.back() ^ 1); };
  Agent agent(loop, wire.port());
  REQUIRE(run_until(loop, [&] { return !agent.why.empty(); }));
  CHECK(agent.why == "the host does not know the token");
  CHECK_FALSE(agent.ready);
}

TEST_CASE("an agent does not talk to a TLS server that has a certificate in place of the token", "[unit]") {
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  REQUIRE(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  REQUIRE(SSL_CTX_use_certificate(context.get(), certificate.get()) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1);
  const Descriptor listener = listen_on({"127.0.0.1", 0});
  int finished = 0;
  std::thread server([&] {
    pollfd waiting{listener.get(), POLLIN, 0};
    poll(&waiting, 1, 10'000);
    const Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::unique_ptr<SSL, void (*)(SSL*)> tls(SSL_new(context.get()), SSL_free);
    SSL_set_fd(tls.get(), socket.get());
    finished = SSL_accept(tls.get());
  });
  EventLoop loop;
  Agent agent(loop, port_of(listener.get()));
  const bool ended = run_until(loop, [&] { return !agent.why.empty() || agent.ready; });
  server.join();
  CHECK(ended);
  CHECK_FALSE(agent.ready);
  CHECK_FALSE(agent.channel.refused());
  CHECK(finished != 1);
}

TEST_CASE("what was recorded of one connection is worthless on the next", "[unit]") {
  EventLoop loop;
  Host host(loop);
  Wire wire(loop, {"127.0.0.1", 0}, {"127.0.0.1", host.port});
  Agent agent(loop, wire.port());
  REQUIRE(run_until(loop, [&] { return agent.ready && host.channels.size() == 1; }));
  agent.channel.send(1, 0, "an order that others cannot read");
  REQUIRE(run_until(loop, [&] { return host.frames.size() == 1; }));
  CHECK(wire.to_host.find("an order") == std::string::npos);
  const Client replay(host.port);
  replay.send(wire.to_host);
  REQUIRE(run_until(loop, [&] { return host.turned_away("wrong token") == 1; }));
  CHECK(host.frames.size() == 1);
  CHECK(host.channels.size() == 1);
}

TEST_CASE("a frame that was changed, repeated or left out closes the connection", "[unit]") {
  for (const std::string how : {"changed", "header", "repeated", "left out", "version"}) {
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
      if (how == "version") bytes[1] = 1;
    };
    for (int i = 0; i < 3; ++i) {
      agent.channel.send(1, 0, "frame " + std::to_string(i));
      run_until(loop, [&] { return passed == i + 1 || !host.closed.empty(); });
    }
    REQUIRE(run_until(loop, [&] { return !host.closed.empty(); }));
    CHECK(host.closed[0].find("wrong MAC") != std::string::npos);
    CHECK(host.frames.size() == (how == "repeated" ? 2U : 1U));
  }
}
