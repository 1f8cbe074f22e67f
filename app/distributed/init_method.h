// The key distributed.init_method: where the ranks of a group meet.
#pragma once

#include <cstdint>
#include <string>

#include "app/distributed/environment.h"

namespace bert {

struct StorePlace {
  std::string file;  // path of file://; otherwise host and port are set
  std::string host;
  int64_t port = 0;

  [[nodiscard]] std::string text() const { return file.empty() ? host + ":" + std::to_string(port) : file; }
};

/// Splits "?rank=0&world_size=2" off an init_method, as torch does, and sets the values that are not set yet. Throws
/// ConfigError.
std::string take_query(const std::string& method, int64_t& rank, int64_t& world_size);

/// The place that env://, tcp://HOST:PORT or file:///PATH names. Throws ConfigError.
StorePlace parse_init_method(const std::string& text, const DistributedEnvironment& environment);

}  // namespace bert
