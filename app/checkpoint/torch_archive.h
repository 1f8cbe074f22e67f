// The zip archives that LibTorch writes: TorchScript exports.
#pragma once

#include <string>
#include <string_view>

namespace bert {

/// Compares each member of an archive with its CRC-32, which LibTorch writes and does not look at when it reads, and
/// every other byte with what LibTorch writes there. `bytes` is the whole of `file`, which stands in messages. Throws
/// DataError with the first byte that is something else, also for a zip archive of another program.
/// Source: PKWARE's APPNOTE.TXT, 4.3 and 4.5.3; miniz 3.0.2 as LibTorch 2.11 calls it.
void verify_torch_archive(std::string_view bytes, const std::string& file);

}  // namespace bert
