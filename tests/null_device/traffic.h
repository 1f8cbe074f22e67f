// Bytes that works read and write, by the names of the works.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tests/null_device/null_device.h"

namespace null_device {

/// The works of one name since reset_counts(), and the bytes of their accesses.
struct Traffic {
  int64_t works = 0, bytes = 0;
};
std::map<std::string, Traffic> traffic();
void add_traffic(const Work& work);

}  // namespace null_device
