#include "app/net/peer_finder.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "data/io/error.h"

namespace bert {
namespace {

/// One end of a connection.
struct TcpEnd {
  std::array<uint32_t, 4> address{};  // in network byte order; IPv4 is mapped into IPv6
  uint16_t port = 0;                  // in network byte order
};

using NameOf = int (*)(int, sockaddr*, socklen_t*);  // getsockname or getpeername

/// Returns nothing if the socket has no such end, for example after a reset.
std::optional<TcpEnd> end_of(int socket, NameOf name_of) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  TcpEnd end;
  if (address.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address);
    end.address = {0, 0, htonl(0xffff), v4->sin_addr.s_addr};
    end.port = v4->sin_port;
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address);
    std::memcpy(end.address.data(), &v6->sin6_addr, sizeof end.address);
    end.port = v6->sin6_port;
  }
  return end;
}

bool is_v4(const TcpEnd& end) { return end.address[0] == 0 && end.address[1] == 0 && end.address[2] == htonl(0xffff); }

/// The owner of the socket that has these ends. Returns nothing if sock_diag does not answer.
std::optional<SocketOwner> ask_sock_diag(int diag, const TcpEnd& local, const TcpEnd& remote) {
  struct {
    nlmsghdr header{};
    inet_diag_req_v2 body{};
  } request;
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST;
  request.body.sdiag_family = is_v4(local) ? AF_INET : AF_INET6;
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_states = ~0U;
  request.body.id.idiag_sport = local.port;
  request.body.id.idiag_dport = remote.port;
  const size_t skipped = is_v4(local) ? 3 : 0;  // IPv4 addresses stand in the first word
  std::copy(local.address.begin() + skipped, local.address.end(), request.body.id.idiag_src);
  std::copy(remote.address.begin() + skipped, remote.address.end(), request.body.id.idiag_dst);
  request.body.id.idiag_cookie[0] = request.body.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  if (send(diag, &request, sizeof request, 0) != sizeof request) return std::nullopt;
  struct {
    nlmsghdr header{};
    union {
      nlmsgerr error;
      inet_diag_msg socket;
    } body{};
    std::array<char, 1024> attributes;
  } answer;
  const ssize_t got = recv(diag, &answer, sizeof answer, MSG_DONTWAIT);  // the kernel answers inside send()
  if (got < static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr))) return std::nullopt;
  if (answer.header.nlmsg_type == SOCK_DIAG_BY_FAMILY) {
    // If no connection has these ends, the kernel answers with a listener at the local end, who may be anybody.
    if (answer.body.socket.id.idiag_dport != remote.port) return SocketOwner{};
    return SocketOwner{answer.body.socket.idiag_uid, answer.body.socket.idiag_inode};
  }
  const bool unknown = answer.header.nlmsg_type == NLMSG_ERROR && answer.body.error.error == -ENOENT;
  return unknown ? std::optional<SocketOwner>(SocketOwner{}) : std::nullopt;
}

/// An end as the tables write it: words of the address in this machine's byte order, and the port.
std::string table_text(const TcpEnd& end, bool v4) {
  std::string text;
  for (size_t i = v4 ? 3 : 0; i < end.address.size(); ++i) text += fmt::format("{:08X}", end.address[i]);
  return text + fmt::format(":{:04X}", ntohs(end.port));
}

std::optional<SocketOwner> find_in_table(const std::string& file, const std::string& local, const std::string& remote) {
  std::ifstream table(file);
  std::string line;
  if (!std::getline(table, line))
    throw IoError(file +
                  " cannot be read, and the kernel does not answer sock_diag, so nobody can tell whose "
                  "connections these are; mount /proc, or load the kernel module tcp_diag");
  while (std::getline(table, line)) {
    std::istringstream fields(line);
    std::string slot, from, to, skipped;
    fields >> slot >> from >> to;
    if (from != local || to != remote) continue;
    SocketOwner owner;
    for (int i = 0; i < 4; ++i) fields >> skipped;  // state, queues, timer, retransmits
    fields >> owner.user >> skipped >> owner.inode;
    return owner;
  }
  return std::nullopt;
}

}  // namespace

PeerFinder::PeerFinder(int listener) : diag_(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {
  struct stat state {};
  const std::optional<TcpEnd> local = end_of(listener, getsockname);
  if (!local || fstat(listener, &state) != 0 || !diag_) {
    diag_.reset();
    return;
  }
  TcpEnd nowhere;
  if (is_v4(*local)) nowhere.address[2] = htonl(0xffff);
  // Without the module tcp_diag every socket is unknown.
  const auto owner = ask_sock_diag(diag_.get(), *local, nowhere);
  if (!owner || owner->inode != state.st_ino) diag_.reset();
}

SocketOwner PeerFinder::owner_of_peer(int connection) const {
  if (!diag_) return owner_of_peer_in_tables("/proc/net", connection);
  const std::optional<TcpEnd> local = end_of(connection, getpeername), remote = end_of(connection, getsockname);
  if (!local || !remote) return {};
  const auto owner = ask_sock_diag(diag_.get(), *local, *remote);
  if (!owner) throw IoError("sock_diag does not tell whose connection this is");
  return *owner;
}

SocketOwner owner_of_peer_in_tables(const std::string& directory, int connection) {
  const std::optional<TcpEnd> local = end_of(connection, getpeername), remote = end_of(connection, getsockname);
  if (!local || !remote) return {};
  std::optional<SocketOwner> owner;
  if (is_v4(*local)) owner = find_in_table(directory + "/tcp", table_text(*local, true), table_text(*remote, true));
  // An IPv6 socket may hold an IPv4 connection.
  if (!owner) owner = find_in_table(directory + "/tcp6", table_text(*local, false), table_text(*remote, false));
  return owner.value_or(SocketOwner{});
}

}  // namespace bert
