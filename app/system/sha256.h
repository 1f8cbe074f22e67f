// SHA-256 and HMAC, by OpenSSL's libcrypto.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// SHA-256 of `text` as 64 lowercase hexadecimal digits. Source: FIPS 180-4.
std::string sha256(std::string_view text);

/// HMAC-SHA256, 32 bytes. Source: RFC 2104.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Compares two secrets in a time that depends only on their lengths.
bool equal_secrets(std::string_view a, std::string_view b);

}  // namespace bert
