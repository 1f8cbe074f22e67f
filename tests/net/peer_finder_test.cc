// The owners of the other ends of connections, from both sources.
#include "app/net/peer_finder.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "app/net/socket.h"
#include "data/io/error.h"
#include "tests/testing.h"

using namespace bert;
using bert::testing::TemporaryDirectory;

namespace {

uint64_t inode_of(int descriptor) {
  struct stat state {};
  REQUIRE(fstat(descriptor, &state) == 0);
  return state.st_ino;
}

/// A connected socket of a family; `host` is numeric.
Descriptor connected(int family, const std::string& host, int64_t port) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int reuse = 1;  // so that a listener can bind the same port
  REQUIRE(setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0);
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(static_cast<uint16_t>(port));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = v4.sin_port;
  const bool is_v4 = family == AF_INET;
  REQUIRE(inet_pton(family, host.c_str(), is_v4 ? static_cast<void*>(&v4.sin_addr) : &v6.sin6_addr) == 1);
  const auto* address = is_v4 ? reinterpret_cast<sockaddr*>(&v4) : reinterpret_cast<sockaddr*>(&v6);
  REQUIRE(connect(socket.get(), address, is_v4 ? sizeof v4 : sizeof v6) == 0);
  return socket;
}

}  // namespace

TEST_CASE("the kernel names the owner of the other end, and nobody for a closed one", "[unit]") {
  struct Case {
    std::string listens;
    int family;
    std::string connects_to;
  };
  for (const Case& each : {Case{"127.0.0.1", AF_INET, "127.0.0.1"}, Case{"127.0.0.1", AF_INET6, "::ffff:127.0.0.1"},
                           Case{"::1", AF_INET6, "::1"}}) {
    CAPTURE(each.listens, each.connects_to);
    const Descriptor listener = try_listen_on({each.listens, 0});
    if (!listener) BERT_SKIP("this machine has no IPv6");
    Descriptor client = connected(each.family, each.connects_to, port_of(listener.get()));
    const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(accepted);
    const PeerFinder finder(listener.get());
    const uint64_t inode = inode_of(client.get());
    const auto check = [&](const std::function<SocketOwner()>& ask) {
      CHECK(ask().inode == inode);
      CHECK(ask().user == geteuid());
    };
    check([&] { return finder.owner_of_peer(accepted.get()); });
    check([&] { return owner_of_peer_in_tables("/proc/net", accepted.get()); });
    CHECK(process_of_socket(inode).pid == getpid());
    client.reset();
    CHECK(finder.owner_of_peer(accepted.get()).inode == 0);
    CHECK(owner_of_peer_in_tables("/proc/net", accepted.get()).inode == 0);
  }
}

TEST_CASE("a listener at the port of a client that is gone is not the client", "[unit]") {
  const Descriptor listener = listen_on({"127.0.0.1", 0});
  Descriptor client, accepted, later;
  while (!later) {  // again while another program has a connection from the same port
    client = connected(AF_INET, "127.0.0.1", port_of(listener.get()));
    accepted = Descriptor(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    later = try_listen_on({"127.0.0.1", port_of(client.get())});  // before another program takes the port
  }
  const PeerFinder finder(listener.get());
  const int second = 1;  // until the kernel forgets the closed end
  REQUIRE(setsockopt(client.get(), IPPROTO_TCP, TCP_LINGER2, &second, sizeof second) == 0);
  client.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  CHECK(finder.owner_of_peer(accepted.get()).inode == 0);
  CHECK(owner_of_peer_in_tables("/proc/net", accepted.get()).inode == 0);
}

TEST_CASE("tables that cannot be read are an error, and one that lacks the socket names nobody", "[unit]") {
  const Descriptor listener = listen_on({"127.0.0.1", 0});
  const Descriptor client = connected(AF_INET, "127.0.0.1", port_of(listener.get()));
  const Descriptor accepted(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const TemporaryDirectory directory;
  CHECK_THROWS_AS(owner_of_peer_in_tables(directory.path(), accepted.get()), IoError);
  for (const char* name : {"tcp", "tcp6"}) std::ofstream(directory.path(name)) << "  sl  local_address rem_address\n";
  CHECK(owner_of_peer_in_tables(directory.path(), accepted.get()).inode == 0);
}
