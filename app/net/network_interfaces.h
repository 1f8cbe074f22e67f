// Which of this machine's network interfaces other machines may reach.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bert {

/// What bertrun tells the ranks of several machines: the address that its own connection to the job has here.
inline constexpr const char* kLocalAddressVariable = "BERTRUN_LOCAL_ADDRESS";

/// Addresses of this machine's interfaces that are up, by the interface's name; of those that have one.
using InterfaceAddresses = std::map<std::string, std::vector<std::string>>;
InterfaceAddresses interface_addresses();

/// The interfaces in GLOO_SOCKET_IFNAME, names with commas between; none where it is unset or empty. Throws ConfigError
/// when one of them is not among `present`, with those that are.
std::vector<std::string> chosen_interfaces(const InterfaceAddresses& present);

/// This machine's address on the network of its job: bertrun's BERTRUN_LOCAL_ADDRESS, else that of the route to the
/// master. "" where neither is known, and where the master's name is one of this machine's loopback addresses.
std::string job_address(const std::string& master_addr, int64_t master_port);

/// Whether this machine's own name stands for a loopback address (Debian's 127.0.1.1), or for none.
bool own_name_is_loopback();

/// The interface of the default IPv4 route, the one with the smallest metric; where there is none, as in a cluster's own
/// network, the only one that has a route; "" where there are several.
std::string outward_interface();

/// The same, of a table such as /proc/net/route.
std::string outward_interface(const std::string& table);

}  // namespace bert
