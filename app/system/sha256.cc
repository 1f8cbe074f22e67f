#include "app/system/sha256.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <limits>
#include <stdexcept>

#include "app/system/random_bytes.h"

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

}  // namespace bert
