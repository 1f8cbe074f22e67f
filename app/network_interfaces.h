// Which of this machine's network interfaces other machines may reach.
#pragma once

#include <string>

namespace bert {

/// Whether this machine's own name stands for a loopback address (Debian's 127.0.1.1), or for none.
bool own_name_is_loopback();

/// The interface of the default IPv4 route, the one with the smallest metric; where there is none, as in a cluster's own
/// network, the only one that has a route; "" where there are several.
std::string outward_interface();

/// The same, of a table such as /proc/net/route.
std::string outward_interface(const std::string& table);

}  // namespace bert
