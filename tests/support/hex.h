// Bytes of golden files.
#pragma once

#include <string>

namespace bert::testing {

/// The bytes that hexadecimal digits spell.
inline std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace bert::testing
