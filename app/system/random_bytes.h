// Random bytes from the kernel: for tokens, nonces and names.
#pragma once

#include <cstddef>
#include <string>

namespace bert {

/// Returns `count` unpredictable bytes. Throws IoError.
std::string random_bytes(size_t count);

/// A version 4 UUID (RFC 4122), as 8-4-4-4-12 hexadecimal digits.
std::string random_uuid();

/// Two lowercase hexadecimal digits per byte.
std::string to_hexadecimal(const std::string& bytes);

}  // namespace bert
