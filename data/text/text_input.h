// Whether a file that should be UTF-8 text is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// Throws DataError when `text`, or the beginning of it, begins as a compressed file or UTF-16 does; `name` is where it
/// comes from: "a.gz: is gzip; unpack it first".
void check_is_plain_text(const std::string& name, std::string_view text);

/// Throws DataError with the first of them when `invalid` sequences, which `text` has, are too many for UTF-8 that was
/// damaged in places: more than ten, and more than one in a hundred bytes. In Latin-1 two of a hundred letters of most
/// European languages are invalid, in binary files about forty.
void check_share_of_invalid(const std::string& name, std::string_view text, int64_t invalid);

/// What was read of files that have no text.
struct NoText {
  std::vector<std::string> paths;
  int64_t bytes = 0;              // of all
  int64_t invalid_sequences = 0;  // of UTF-8, in all
};

/// Throws DataError: why there is nothing to read.
[[noreturn]] void throw_no_text(const NoText& read);

}  // namespace bert
