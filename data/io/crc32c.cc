#include "data/io/crc32c.h"

#include <nmmintrin.h>

#include <cstring>

namespace bert {

__attribute__((target("sse4.2"))) uint32_t crc32c(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  uint64_t crc = 0xffffffffU;
  for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    crc = _mm_crc32_u64(crc, word);
  }
  auto result = static_cast<uint32_t>(crc);
  for (; bytes > 0; --bytes, ++at) result = _mm_crc32_u8(result, static_cast<uint8_t>(*at));
  return ~result;
}

}  // namespace bert
