#include "app/system/random_bytes.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "data/io/error.h"

namespace bert {

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(bytes.data() + done, count - done, 0);
    if (got < 0 && errno != EINTR) throw IoError(std::string("getrandom: ") + std::strerror(errno));
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string to_hexadecimal(const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string result;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    result += kDigits[value >> 4];
    result += kDigits[value & 15];
  }
  return result;
}

std::string random_uuid() {
  std::string bytes = random_bytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);  // version 4
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);  // RFC 4122's variant
  const std::string digits = to_hexadecimal(bytes);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i == 8 || i == 12 || i == 16 || i == 20) text += '-';
    text += digits[i];
  }
  return text;
}

}  // namespace bert
