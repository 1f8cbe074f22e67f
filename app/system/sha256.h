#pragma once

#include <string>
#include <string_view>

namespace bert {

/// SHA-256 of `text` as 64 lowercase hexadecimal digits. Source: FIPS 180-4.
std::string sha256(std::string_view text);

/// The same as 32 bytes.
std::string sha256_bytes(std::string_view text);

}  // namespace bert
