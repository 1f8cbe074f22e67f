// TCP endpoints and non-blocking sockets.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

struct Endpoint {
  std::string host;
  int64_t port = 0;
};

/// Parses HOST[:PORT] as torchrun does: "" is localhost, and IPv6 addresses have brackets. Throws UsageError.
Endpoint parse_endpoint(const std::string& text, int64_t default_port);

/// "host:port", with brackets around IPv6.
std::string to_string(const Endpoint& endpoint);

/// This machine's name for other machines: its fully qualified name if it has one.
std::string host_name();

/// True if `host` is written as an address, not as a name.
bool is_address(const std::string& host);

/// True if `host` has addresses and all of them are loopback addresses.
bool is_loopback(const std::string& host);

/// True if `host` is this machine: one of its names, or an address of one of its interfaces.
bool is_this_machine(const std::string& host);

/// A listening socket on exactly this endpoint (port 0: any port). Throws IoError. If the port is taken, the message
/// names the process that holds it, if known, and ends with `advice`.
Descriptor listen_on(const Endpoint& endpoint,
                     const std::string& advice = "name another port, or use --standalone on one machine");

/// Reserves a port. The kernel gives the port to no other process, but a process that asks for it by number with
/// SO_REUSEADDR, as servers do, gets it.
Descriptor reserve_port(const std::string& host);

/// The same as listen_on, but returns nothing if the port is taken.
Descriptor try_listen_on(const Endpoint& endpoint);

/// The port of a bound socket.
int64_t port_of(int socket);

/// Starts a non-blocking connection. The socket becomes writable when the connection stands or has failed (see
/// connection_error). If a name has several addresses, attempt 0 tries the first, attempt 1 the next, and so on in a
/// circle. Throws IoError if the name has no address.
Descriptor start_connect(const Endpoint& endpoint, size_t attempt = 0);

/// The error of a connection that became writable; 0 if the connection stands.
int connection_error(int socket);

/// Numeric address and port of the other side, for logs.
std::string peer_of(int socket);

/// Numeric address of this side of a connection, without the port; "" if it has none.
std::string local_address_of(int socket);

/// The address of this machine from which `endpoint` is reached, according to the routes. IPv4 is preferred if the host
/// has both. Sends nothing. Returns "" if there is no route or no address.
std::string local_address_towards(const Endpoint& endpoint);

/// Closes a connection if the other side does not acknowledge data for `seconds`, or sends nothing and does not answer
/// keep-alive probes.
void set_peer_timeout(int socket, double seconds);

/// A process of this machine; pid 0 if it is unknown.
struct SocketProcess {
  pid_t pid = 0;
  std::string name;
};

/// "pid 12 (name)"; "" if the process is unknown.
std::string to_string(const SocketProcess& process);

/// The process that has a socket open, according to the descriptors in /proc that this user may see.
SocketProcess process_of_socket(uint64_t inode);

/// The process that listens on a local TCP port, as "pid 12 (name)"; "" if unknown.
std::string owner_of_port(int64_t port);

}  // namespace bert
