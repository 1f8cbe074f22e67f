// The wire format of protocol buffers: fields of a message, one after another, each with a number, a type and a value.
// Source: protobuf.dev/programming-guides/encoding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bert::wire {

enum Type : uint64_t { kVarint = 0, kFixed64 = 1, kLengthDelimited = 2, kFixed32 = 5 };

/// One field of a message: its number, and its number or bytes.
struct Field {
  uint64_t number = 0, type = 0, varint = 0;
  std::string_view bytes;

  /// The value of a kFixed32. Throws DataError if the field has another type.
  [[nodiscard]] uint32_t fixed32() const;
  /// The value of a kFixed64. Throws DataError if the field has another type.
  [[nodiscard]] uint64_t fixed64() const;
};

/// The fields of a message in their order. Every member throws DataError if the message is cut off or has a value that
/// the format does not allow.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  /// Takes the next field. Returns false at the end of the message.
  bool next(Field& field);
  /// The next number of a packed list.
  uint64_t varint();
  std::string_view take(uint64_t bytes);
  [[nodiscard]] bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// The bytes of a number.
size_t varint_bytes(uint64_t value);
/// Appends a number without a tag.
void append_varint(std::string& bytes, uint64_t value);
/// Appends the tag and the length of a field of `size` bytes, which the caller appends.
void append_head(std::string& bytes, uint64_t field, size_t size);
/// Appends a field that holds a number. A negative one is the two's complement of 64 bits.
void append_number(std::string& bytes, uint64_t field, int64_t value);
/// Appends a field that holds bytes: a text, or a message.
void append_bytes(std::string& bytes, uint64_t field, std::string_view content);
/// Appends a field that holds a number of type float.
void append_float(std::string& bytes, uint64_t field, float value);
/// Appends a field that holds a number of type double.
void append_double(std::string& bytes, uint64_t field, double value);

}  // namespace bert::wire
