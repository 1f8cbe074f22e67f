// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, as in RFC 3720 B.4), and the masked form that TFRecord stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bert {

/// The checksum of `bytes` bytes. Needs the SSE4.2 instruction, which every processor with AVX2 has.
uint32_t crc32c(const void* data, size_t bytes);

/// TFRecord's form of a checksum, which stays sound where the data contain checksums themselves. Source:
/// tensorflow/tsl/lib/hash/crc32c.h, Mask().
constexpr uint32_t masked_crc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8U; }

}  // namespace bert
