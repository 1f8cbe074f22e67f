#include "app/serve/protocols/number_text.h"

#include <openssl/evp.h>

#include <bit>
#include <charconv>
#include <cmath>

namespace bert {

static_assert(std::endian::native == std::endian::little);

void append_number(std::string& out, float value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  constexpr size_t kMostDigits = 32;
  char digits[kMostDigits];
  out.append(digits, std::to_chars(digits, digits + kMostDigits, value).ptr);
}

void append_numbers(std::string& out, std::span<const float> values) {
  constexpr size_t kBytesOfNumber = 13;
  out.reserve(out.size() + 2 + values.size() * kBytesOfNumber);
  out += '[';
  for (const float& value : values) {
    if (&value != values.data()) out += ',';
    append_number(out, value);
  }
  out += ']';
}

std::string base64_of(std::span<const float> values) {
  std::string text((values.size_bytes() + 2) / 3 * 4 + 1, '\0');  // EVP_EncodeBlock() adds a zero
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(values.data()), static_cast<int>(values.size_bytes()));
  text.resize(static_cast<size_t>(size));
  return text;
}

}  // namespace bert
