// Checksums and authentication by OpenSSL's libcrypto, and random bytes from the kernel for tokens, nonces and names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace bert {

/// SHA-256 of `text` as 64 lowercase hexadecimal digits. Source: FIPS 180-4.
std::string sha256(std::string_view text);

/// HMAC-SHA256, 32 bytes. Source: RFC 2104.
std::string hmac_sha256(std::string_view key, std::string_view text);

/// Compares two secrets in a time that depends only on their lengths.
bool equal_secrets(std::string_view a, std::string_view b);

/// Returns `count` unpredictable bytes. Throws IoError.
std::string random_bytes(size_t count);

/// A version 4 UUID (RFC 4122), as 8-4-4-4-12 hexadecimal digits.
std::string random_uuid();

/// Two lowercase hexadecimal digits per byte.
std::string to_hexadecimal(const std::string& bytes);

}  // namespace bert
