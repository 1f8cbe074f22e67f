#include "app/net/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <vector>

#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The TCP addresses of a host; empty if it has none.
AddressList addresses_of(const std::string& host, int64_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* list = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) list = nullptr;
  return {list, &freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t size, std::string* port = nullptr) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (getnameinfo(address, size, host.data(), host.size(), service.data(), service.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "?";
  }
  if (port != nullptr) *port = service.data();
  return host.data();
}

bool loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(v4->sin_addr.s_addr) >> 24) == 127;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return address->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) != 0;
}

/// The addresses of this machine's interfaces.
std::set<std::string> own_addresses() {
  std::set<std::string> result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr) continue;
    if (item->ifa_addr->sa_family == AF_INET) result.insert(numeric(item->ifa_addr, sizeof(sockaddr_in)));
    if (item->ifa_addr->sa_family == AF_INET6) result.insert(numeric(item->ifa_addr, sizeof(sockaddr_in6)));
  }
  freeifaddrs(list);
  return result;
}

Descriptor bind_or_error(const Endpoint& endpoint, bool listens, int& error) {
  const AddressList list = addresses_of(endpoint.host, endpoint.port, AI_PASSIVE);
  error = EADDRNOTAVAIL;
  for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
    Descriptor socket_descriptor(::socket(item->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (socket_descriptor && setsockopt(socket_descriptor.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        bind(socket_descriptor.get(), item->ai_addr, item->ai_addrlen) == 0 &&
        (!listens || listen(socket_descriptor.get(), SOMAXCONN) == 0)) {
      return socket_descriptor;
    }
    error = errno;
    if (error == EADDRINUSE) break;
  }
  return Descriptor();
}

/// The inode of the socket that listens on a port, from /proc/net; 0 if there is none.
uint64_t inode_of_listener(const char* table, int64_t port) {
  constexpr const char* kListening = "0A";  // TCP_LISTEN in Linux' tcp_states.h
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skipped;
    uint64_t inode = 0;
    fields >> slot >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skipped;  // queues, timer, retransmits, user, timeout
    fields >> inode;
    const size_t colon = local.rfind(':');
    if (state != kListening || colon == std::string::npos) continue;
    if (number_of<int64_t>(std::string_view(local).substr(colon + 1), 16) == port) return inode;
  }
  return 0;
}

}  // namespace

Endpoint parse_endpoint(const std::string& given, int64_t default_port) {
  const std::string text(trimmed(given));
  if (text.empty()) return {"localhost", default_port};
  Endpoint result{text, default_port};
  const bool only_brackets = text.front() == '[' && text.back() == ']';
  if (const size_t colon = text.rfind(':'); colon != std::string::npos && !only_brackets) {
    result.host = text.substr(0, colon);
    result.port = number_of<int64_t>(std::string_view(text).substr(colon + 1)).value_or(-1);
    if (result.port < 0 || result.port > 65535)
      throw UsageError("endpoint " + text + ": expected a port from 0 to 65535 after the last colon");
  }
  if (result.host.size() > 1 && result.host.front() == '[' && result.host.back() == ']')
    result.host = result.host.substr(1, result.host.size() - 2);
  const bool allowed = std::ranges::all_of(result.host, [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == ':' || c == '-' || c == '_';
  });
  if (result.host.empty() || !allowed)
    throw UsageError("endpoint " + text + ": expected a host name, an IPv4 address, or an IPv6 address in brackets");
  return result;
}

std::string to_string(const Endpoint& endpoint) {
  const bool v6 = endpoint.host.find(':') != std::string::npos;
  return (v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  const AddressList list = addresses_of(name.data(), 0, AI_CANONNAME);
  return list != nullptr && list->ai_canonname != nullptr ? list->ai_canonname : name.data();
}

bool is_address(const std::string& host) { return addresses_of(host, 0, AI_NUMERICHOST) != nullptr; }

bool is_loopback(const std::string& host) {
  const AddressList list = addresses_of(host, 0, 0);
  for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
    if (!loopback(item->ai_addr)) return false;
  }
  return list != nullptr;
}

bool is_this_machine(const std::string& host) {
  std::array<char, 256> name{};
  if (host == "localhost" || (gethostname(name.data(), name.size() - 1) == 0 && host == name.data())) return true;
  const std::set<std::string> own = own_addresses();
  const AddressList list = addresses_of(host, 0, 0);
  for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
    if (loopback(item->ai_addr) || own.contains(numeric(item->ai_addr, item->ai_addrlen))) return true;
  }
  return false;
}

Descriptor listen_on(const Endpoint& endpoint, const std::string& advice) {
  int error = 0;
  Descriptor result = bind_or_error(endpoint, true, error);
  if (result) return result;
  std::string message = "cannot listen on " + to_string(endpoint) + ": " + std::strerror(error);
  if (error == EADDRINUSE) {
    const std::string owner = owner_of_port(endpoint.port);
    message += (owner.empty() ? "" : ", by " + owner) + "; " + advice;
  } else {
    message += "; is " + endpoint.host + " an address of this machine?";
  }
  throw IoError(message);
}

Descriptor try_listen_on(const Endpoint& endpoint) {
  int error = 0;
  return bind_or_error(endpoint, true, error);
}

Descriptor reserve_port(const std::string& host) {
  int error = 0;
  Descriptor result = bind_or_error({host, 0}, false, error);
  if (!result) throw IoError("cannot bind a port of " + host + ": " + std::strerror(error));
  return result;
}

int64_t port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  std::string port = "0";
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0)
    numeric(reinterpret_cast<sockaddr*>(&address), size, &port);
  return std::stoll(port);
}

Descriptor start_connect(const Endpoint& endpoint, size_t attempt) {
  const AddressList list = addresses_of(endpoint.host, endpoint.port, 0);
  if (list == nullptr) throw IoError(endpoint.host + ": no address is known for this name; check DNS or /etc/hosts");
  std::vector<const addrinfo*> addresses;
  for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) addresses.push_back(item);
  int error = 0;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const addrinfo* item = addresses[(attempt + i) % addresses.size()];
    Descriptor result(::socket(item->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    if (result) {
      setsockopt(result.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (connect(result.get(), item->ai_addr, item->ai_addrlen) == 0 || errno == EINPROGRESS) return result;
    }
    error = errno;
  }
  throw IoError(to_string(endpoint) + ": " + std::strerror(error));
}

int connection_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

std::string peer_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  std::string port;
  const std::string host = numeric(reinterpret_cast<sockaddr*>(&address), size, &port);
  return to_string({host, port.empty() ? 0 : std::stoll(port)});
}

std::string local_address_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  const std::string host = numeric(reinterpret_cast<sockaddr*>(&address), size);
  return host == "?" ? "" : host;
}

std::string local_address_towards(const Endpoint& endpoint) {
  const AddressList list = addresses_of(endpoint.host, endpoint.port, 0);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* item = list.get(); item != nullptr; item = item->ai_next) {
      if (item->ai_family != family) continue;
      // For UDP, connect() only looks up the route.
      const Descriptor probe(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
      if (probe && connect(probe.get(), item->ai_addr, item->ai_addrlen) == 0) return local_address_of(probe.get());
    }
  }
  return "";
}

void set_peer_timeout(int socket, double seconds) {
  const int milliseconds = static_cast<int>(std::min(seconds * 1000, 86400e3)), on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

std::string to_string(const SocketProcess& process) {
  return process.pid == 0 ? "" : "pid " + std::to_string(process.pid) + " (" + process.name + ")";
}

SocketProcess process_of_socket(uint64_t inode) {
  if (inode == 0) return {};
  const std::string wanted = "socket:[" + std::to_string(inode) + "]";
  std::error_code ignored;
  for (const auto& process : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string pid = process.path().filename();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    // A range-based loop would use operator++, which throws if the process ends meanwhile.
    std::filesystem::directory_iterator file(process.path() / "fd", ignored);
    for (; file != std::filesystem::directory_iterator(); file.increment(ignored)) {
      if (std::filesystem::read_symlink(file->path(), ignored) != wanted) continue;
      SocketProcess found{static_cast<pid_t>(std::stol(pid)), ""};
      std::ifstream comm(process.path() / "comm");
      std::getline(comm, found.name);
      return found;
    }
  }
  return {};
}

std::string owner_of_port(int64_t port) {
  uint64_t inode = inode_of_listener("/proc/net/tcp", port);
  if (inode == 0) inode = inode_of_listener("/proc/net/tcp6", port);
  return to_string(process_of_socket(inode));
}

}  // namespace bert
