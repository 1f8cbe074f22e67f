// Checks that an input is UTF-8 text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// The format of compressed files that `text` begins as: gzip, bzip2, xz, zstd or zip. Empty for anything else.
std::string_view packed_format(std::string_view text);

/// Throws DataError if `text`, which may be the beginning of a file, begins as a compressed file or as UTF-16, or
/// is binary: more than one in a hundred of its first bytes are 0. `name` is its source in the message: "a.gz: is gzip;
/// unpack it first".
void check_is_plain_text(const std::string& name, std::string_view text);

/// True if `invalid` sequences in `bytes` of text are damage of UTF-8, and not another encoding: at most ten, or at most
/// one in a hundred bytes. In Latin-1 text two of a hundred letters of most European languages are invalid; in binary
/// files about forty are.
bool is_damaged_text(int64_t invalid, int64_t bytes);

/// Throws DataError, which names the first invalid sequence, if `text` with that number of invalid sequences is not
/// is_damaged_text().
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
