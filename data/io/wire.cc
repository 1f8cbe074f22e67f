#include "data/io/wire.h"

#include <fmt/format.h>

#include <cstring>

#include "data/io/error.h"

namespace bert::wire {

namespace {

template <class Number>
Number fixed(const Field& field, Type type) {
  if (field.type != type)
    throw DataError(fmt::format("field {} of the message is not {} bytes", field.number, sizeof(Number)));
  Number value = 0;
  std::memcpy(&value, field.bytes.data(), sizeof value);
  return value;
}

/// Appends a field of a number with a fixed size.
template <class Number>
void append_fixed(std::string& bytes, uint64_t field, Type type, Number value) {
  append_varint(bytes, field << 3 | type);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
}

}  // namespace

uint32_t Field::fixed32() const { return fixed<uint32_t>(*this, kFixed32); }
uint64_t Field::fixed64() const { return fixed<uint64_t>(*this, kFixed64); }

bool Fields::next(Field& field) {
  if (rest_.empty()) return false;
  const uint64_t tag = varint();
  field = {.number = tag >> 3, .type = tag & 7, .varint = 0, .bytes = {}};
  if (field.number == 0) throw DataError("a field of the message has number 0");
  switch (field.type) {
    case kVarint:
      field.varint = varint();
      return true;
    case kFixed64:
      field.bytes = take(sizeof(uint64_t));
      return true;
    case kLengthDelimited:
      field.bytes = take(varint());
      return true;
    case kFixed32:
      field.bytes = take(sizeof(uint32_t));
      return true;
    default:
      throw DataError(fmt::format("a field of the message has wire type {}", field.type));
  }
}

uint64_t Fields::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    if (shift == 63 && byte > 1) break;  // more than 64 bits
    value |= uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
  throw DataError("a number of the message has more than 64 bits");
}

std::string_view Fields::take(uint64_t bytes) {
  if (bytes > rest_.size()) throw DataError("the message is cut off");
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

size_t varint_bytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

void append_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
}

void append_head(std::string& bytes, uint64_t field, size_t size) {
  append_varint(bytes, field << 3 | kLengthDelimited);
  append_varint(bytes, size);
}

void append_number(std::string& bytes, uint64_t field, int64_t value) {
  append_varint(bytes, field << 3 | kVarint);
  append_varint(bytes, static_cast<uint64_t>(value));
}

void append_bytes(std::string& bytes, uint64_t field, std::string_view content) {
  append_head(bytes, field, content.size());
  bytes += content;
}

void append_float(std::string& bytes, uint64_t field, float value) { append_fixed(bytes, field, kFixed32, value); }
void append_double(std::string& bytes, uint64_t field, double value) { append_fixed(bytes, field, kFixed64, value); }

}  // namespace bert::wire
