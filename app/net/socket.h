// TCP endpoints and non-blocking sockets of the launcher.
#pragma once

#include <cstdint>
#include <string>

#include "data/io/descriptor.h"

namespace bert {

struct Endpoint {
  std::string host;
  int64_t port = 0;
};

/// HOST[:PORT] as torchrun reads it: "" is localhost, IPv6 stands in brackets. Throws UsageError.
Endpoint parse_endpoint(const std::string& text, int64_t default_port);

/// "host:port", with brackets around IPv6.
std::string to_string(const Endpoint& endpoint);

/// This machine's name for others: its fully qualified name where it has one.
std::string host_name();

/// Whether `host` is written as an address, not as a name.
bool is_address(const std::string& host);

/// Whether every address of `host` is a loopback address. A name without an address is not.
bool is_loopback(const std::string& host);

/// Whether `host` is this machine: one of its names, or an address of one of its interfaces.
bool is_this_machine(const std::string& host);

/// A listening socket on exactly this endpoint (port 0: any). Throws IoError; when the port is taken the message names
/// the process that holds it, where it can be found out, and ends with what to do about it.
Descriptor listen_on(const Endpoint& endpoint,
                     const std::string& advice = "name another port, or use --standalone on one machine");

/// A port that nobody else is given, but that a process which asks for it (with SO_REUSEADDR, as servers do) can have.
Descriptor reserve_port(const std::string& host);

/// The same, or nothing when the port is taken.
Descriptor try_listen_on(const Endpoint& endpoint);

/// The port that a bound socket has.
int64_t port_of(int socket);

/// Starts a connection, non-blocking: the socket becomes writable when it stands or has failed (connection_error).
/// Of a name's several addresses the first is tried at attempt 0, the next at attempt 1, and so on around. Throws
/// IoError when the name has no address.
Descriptor start_connect(const Endpoint& endpoint, size_t attempt = 0);

/// The error of a connection that became writable; 0 when it stands.
int connection_error(int socket);

/// Numeric address and port of the other side, for logs.
std::string peer_of(int socket);

/// Numeric address of this side of a connection, without the port; "" when it has none.
std::string local_address_of(int socket);

/// The address of this machine from which `endpoint` is reached, by the routes; IPv4 where the host has both. Nothing is
/// sent. "" when there is no route, or the host has no address.
std::string local_address_towards(const Endpoint& endpoint);

/// Ends a connection whose other side does not acknowledge data for this long, also when it sends nothing.
void set_peer_timeout(int socket, double seconds);

/// The process that listens on a local TCP port, as "pid 12 (name)"; "" when it cannot be found out.
std::string owner_of_port(int64_t port);

}  // namespace bert
