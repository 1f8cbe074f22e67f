#include "app/network_interfaces.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <set>
#include <sstream>

namespace bert {

bool own_name_is_loopback() {
  std::array<char, 256> name{};
  addrinfo hints{}, *list = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (gethostname(name.data(), name.size() - 1) != 0 || getaddrinfo(name.data(), nullptr, &hints, &list) != 0)
    return true;
  const auto* first = reinterpret_cast<const sockaddr_in*>(list->ai_addr);  // the one that Gloo takes
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
  std::getline(lines, line);  // the heads
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
