// Encodings other than UTF-8: found, named, and converted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace bert {

/// True if iconv(3) converts from `encoding` to UTF-8.
bool is_known_encoding(const std::string& encoding);

/// The place of the first byte of `text` that is no UTF-8, or its size.
size_t valid_utf8_bytes(std::string_view text);

/// The likely encoding of `text`, the beginning of a file, as a name for iconv(3): UTF-16, UTF-16LE, UTF-32BE, ISO-2022-JP,
/// WINDOWS-1252 and so on. Empty for UTF-8, also with some damage (is_damaged_text), and for ASCII. "?" for anything
/// else that is not UTF-8. UTF-16 and UTF-32 are told by their byte order mark or by the places of their zero bytes, all
/// others by uchardet.
std::string find_encoding(std::string_view text);

/// True if `text` in UTF-8 proves that a file is not in `encoding`: converting it would give nonsense.
bool contradicts_encoding(std::string_view text, const std::string& encoding);

/// Converts a text that arrives in pieces to UTF-8.
class EncodingConverter {
 public:
  /// Throws std::invalid_argument if the encoding is unknown.
  explicit EncodingConverter(const std::string& encoding);
  ~EncodingConverter();
  EncodingConverter(const EncodingConverter&) = delete;
  EncodingConverter& operator=(const EncodingConverter&) = delete;

  /// Appends the conversion of the next piece of the text to `out`. Drops bytes that mean nothing in the encoding, one
  /// unit at a time, and returns their number. A character may continue in the next piece, unless this is the last.
  int64_t convert(std::string_view piece, bool last, std::string& out);

 private:
  void* handle_;  // iconv_t
  size_t unit_;   // bytes of a code unit
  std::string rest_;
};

}  // namespace bert
