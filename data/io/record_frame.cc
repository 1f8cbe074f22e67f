#include "data/io/record_frame.h"

#include <bit>
#include <cstdint>

#include "data/io/crc32c.h"

namespace bert {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian");

template <class T>
void append_value(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

void append_record(std::string& bytes, std::string_view record) {
  const uint64_t size = record.size();
  append_value(bytes, size);
  append_value(bytes, masked_crc32c(crc32c(&size, sizeof size)));
  bytes += record;
  append_value(bytes, masked_crc32c(crc32c(record.data(), record.size())));
}

}  // namespace bert
