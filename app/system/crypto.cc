#include "app/system/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kDigestBytes = 32;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }
unsigned char* bytes_of(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

std::string sha256(std::string_view text) {
  std::string digest(kDigestBytes, '\0');
  if (EVP_Digest(text.data(), text.size(), bytes_of(digest), nullptr, EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("libcrypto: SHA-256 failed");
  return to_hexadecimal(digest);
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string digest(kDigestBytes, '\0');
  // HMAC() takes the key's length as an int.
  if (key.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes_of(text), text.size(), bytes_of(digest),
           nullptr) == nullptr)
    throw std::runtime_error("libcrypto: HMAC-SHA256 failed");
  return digest;
}

bool equal_secrets(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

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
