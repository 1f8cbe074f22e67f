// Big-endian numbers in the messages between agents.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bert {

/// Appends the lowest `bytes` bytes of `value`.
inline void append_big_endian(std::string& out, uint64_t value, int bytes) {
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) out += static_cast<char>(value >> shift & 0xff);
}

/// The number in `bytes`, at most eight bytes.
inline uint64_t from_big_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char byte : bytes) value = value << 8 | static_cast<unsigned char>(byte);
  return value;
}

}  // namespace bert
