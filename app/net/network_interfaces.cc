#include "app/net/network_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <set>
#include <sstream>

#include "app/net/socket.h"
#include "app/system/environment.h"
#include "app/system/errors.h"

namespace bert {

InterfaceAddresses interface_addresses() {
  InterfaceAddresses result;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return result;
  for (const ifaddrs* item = list; item != nullptr; item = item->ifa_next) {
    if (item->ifa_addr == nullptr || (item->ifa_flags & IFF_UP) == 0) continue;
    const int family = item->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    std::array<char, NI_MAXHOST> address{};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(item->ifa_addr, size, address.data(), address.size(), nullptr, 0, NI_NUMERICHOST) == 0)
      result[item->ifa_name].emplace_back(address.data());
  }
  freeifaddrs(list);
  return result;
}

std::vector<std::string> chosen_interfaces(const InterfaceAddresses& present) {
  std::vector<std::string> result;
  const std::string given = variable_or("GLOO_SOCKET_IFNAME", "");
  std::istringstream names(given);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.empty()) continue;
    if (!present.contains(name)) {
      std::string list;
      for (const auto& [other, addresses] : present)
        list += (list.empty() ? "" : ", ") + other + " (" + addresses.front() + ")";
      throw ConfigError("GLOO_SOCKET_IFNAME=" + given + ": no interface " + name +
                        " is up with an address on this machine; there is " + (list.empty() ? "none" : list));
    }
    result.push_back(name);
  }
  return result;
}

std::string job_address(const std::string& master_addr, int64_t master_port) {
  if (std::string given = variable_or(kLocalAddressVariable, ""); !given.empty()) return given;
  if (master_addr.empty()) return "";
  const std::string address = local_address_towards({master_addr, master_port});
  return address.empty() || is_loopback(address) ? "" : address;
}

bool own_name_is_loopback() {
  std::array<char, 256> name{};
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (gethostname(name.data(), name.size() - 1) != 0 || getaddrinfo(name.data(), nullptr, &hints, &list) != 0)
    return true;
  const auto* first = reinterpret_cast<const sockaddr_in*>(list->ai_addr);  // Gloo takes the first one
  const bool loopback = ntohl(first->sin_addr.s_addr) >> 24 == 127;
  freeaddrinfo(list);
  return loopback;
}

std::string outward_interface() {
  std::ifstream file("/proc/net/route");
  std::stringstream table;
  table << file.rdbuf();
  return outward_interface(table.str());
}

std::string outward_interface(const std::string& table) {
  std::istringstream lines(table);
  std::set<std::string> all;
  std::string best, line;
  int64_t best_metric = -1;
  std::getline(lines, line);  // the table's header
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    std::string name, destination, gateway, flags, references, use;
    int64_t metric = 0;
    if (!(fields >> name >> destination >> gateway >> flags >> references >> use >> metric)) continue;
    all.insert(name);
    if (destination != "00000000" || (best_metric >= 0 && metric >= best_metric)) continue;
    best = name;
    best_metric = metric;
  }
  return best.empty() && all.size() == 1 ? *all.begin() : best;
}

}  // namespace bert
