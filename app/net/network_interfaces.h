// The network interfaces of this machine that other machines may reach.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bert {

/// The variable in which bertrun gives ranks this machine's address on the job's network.
inline constexpr const char* kLocalAddressVariable = "BERTRUN_LOCAL_ADDRESS";

/// Interface name to addresses, for interfaces of this machine that are up and have an address.
using InterfaceAddresses = std::map<std::string, std::vector<std::string>>;
InterfaceAddresses interface_addresses();

/// The interfaces in GLOO_SOCKET_IFNAME (names separated by commas); none if it is unset or empty. Throws ConfigError
/// if a name is not in `present`; the message lists the names in `present`.
std::vector<std::string> chosen_interfaces(const InterfaceAddresses& present);

/// This machine's address on the network of its job: BERTRUN_LOCAL_ADDRESS, else the address of the route to the
/// master. Returns "" if neither is known, or if the master's name is a loopback address of this machine.
std::string job_address(const std::string& master_addr, int64_t master_port);

/// True if this machine's own name stands for a loopback address (Debian's 127.0.1.1) or for no address.
bool own_name_is_loopback();

/// The interface of the default IPv4 route with the smallest metric. Without a default route, as in an isolated cluster
/// network: the only interface that has a route; "" if there are several.
std::string outward_interface();

/// The same for a table in the format of /proc/net/route.
std::string outward_interface(const std::string& table);

}  // namespace bert
