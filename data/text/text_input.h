// Checks that an input is UTF-8 text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// Throws DataError if `text`, which may be the beginning of a file, begins as a compressed file or as UTF-16. `name`
/// is its source in the message: "a.gz: is gzip; unpack it first".
void check_is_plain_text(const std::string& name, std::string_view text);

/// Throws DataError, which quotes the first invalid sequence, if `invalid`, the number of invalid sequences in `text`,
/// is too large for damaged UTF-8: more than ten, and more than one in a hundred bytes. In Latin-1 text two of a
/// hundred letters of most European languages are invalid; in binary files about forty are.
void check_share_of_invalid(const std::string& name, std::string_view text, int64_t invalid);

/// Figures of input files that contain no text.
struct NoText {
  std::vector<std::string> paths;
  int64_t bytes = 0;              // of all files
  int64_t invalid_sequences = 0;  // invalid UTF-8 in all files
};

/// Throws DataError with the reason why there is nothing to read.
[[noreturn]] void throw_no_text(const NoText& read);

}  // namespace bert
