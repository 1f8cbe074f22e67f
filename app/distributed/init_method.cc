#include "app/distributed/init_method.h"

#include <sstream>

#include "app/system/errors.h"
#include "data/io/text_parts.h"

namespace bert {

std::string take_query(const std::string& method, int64_t& rank, int64_t& world_size) {
  const size_t mark = method.find('?');
  if (mark == std::string::npos) return method;
  std::istringstream fields(method.substr(mark + 1));
  for (std::string field; std::getline(fields, field, '&');) {
    const size_t equals = field.find('=');
    const std::string name = field.substr(0, equals);
    const int64_t value =
        equals == std::string::npos ? -1 : number_of<int64_t>(std::string_view(field).substr(equals + 1)).value_or(-1);
    if ((name != "rank" && name != "world_size") || value < 0) {
      throw ConfigError("distributed.init_method \"" + method + "\": expected rank=N and world_size=N after the ?");
    }
    int64_t& target = name == "rank" ? rank : world_size;
    if (target < 0) target = value;
  }
  return method.substr(0, mark);
}

StorePlace parse_init_method(const std::string& text, const DistributedEnvironment& environment) {
  if (text == "env://") return {.file = "", .host = environment.master_addr, .port = environment.master_port};
  if (text.starts_with("file://") && text.size() > 8 && text[7] == '/') return {.file = text.substr(7), .host = ""};
  if (text.starts_with("tcp://")) {
    const size_t colon = text.rfind(':');
    StorePlace place{.file = "", .host = text.substr(6, colon - 6)};
    place.port = number_of<int64_t>(std::string_view(text).substr(colon + 1)).value_or(-1);
    constexpr int64_t kHighestPort = 65535;
    if (place.host.size() > 2 && place.host.front() == '[' && place.host.back() == ']')  // IPv6
      place.host = place.host.substr(1, place.host.size() - 2);
    if (!place.host.empty() && place.port >= 1 && place.port <= kHighestPort) return place;
  }
  throw ConfigError("distributed.init_method \"" + text + "\": expected env://, tcp://HOST:PORT or file:///PATH");
}

}  // namespace bert
