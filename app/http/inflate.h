// Compressed bodies.
#pragma once

#include <cstdint>
#include <string>

namespace bert {

/// The bytes that gzip (RFC 1952) or HTTP's deflate, zlib's form (RFC 1950), has made `body` of. Throws HttpError: 400
/// for a damaged body, 413 for one of more than `most` bytes, which are never in memory together.
std::string inflated(const std::string& body, int64_t most);

}  // namespace bert
