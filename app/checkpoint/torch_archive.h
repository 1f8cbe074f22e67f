// The zip archives that LibTorch and PyTorch write: TorchScript exports, and checkpoints since PyTorch 1.6.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

/// A file in an archive.
struct TorchMember {
  std::string_view name;
  uint64_t begin = 0, stored_bytes = 0, bytes = 0;  // `begin` is an offset in the archive
  uint64_t crc = 0;
  bool deflated = false;  // else stored_bytes == bytes
};

/// The members of an archive in their order. Every byte outside of their data is compared with the value that LibTorch
/// writes there. `bytes` is the whole content of `file`, whose name stands in messages; the views point into `bytes`.
/// Throws DataError as verify_torch_archive() does.
std::vector<TorchMember> torch_members(std::string_view bytes, const std::string& file);

/// Compares the data of a member with its CRC-32. Throws DataError.
void verify_torch_member(std::string_view bytes, const std::string& file, const TorchMember& member);

/// Compares each member of an archive with its CRC-32, which LibTorch writes but does not check when it reads, and
/// every other byte with the value that LibTorch writes there. `bytes` is the whole content of `file`, whose name
/// stands in messages. Throws DataError with the position of the first wrong byte, also for a zip archive of another
/// program.
/// libzip, with its consistency checks on, accepts many damaged archives: of 400 flips of single bits in the last 16 KiB
/// of an export it read 72 without an error (libzip 1.7.3). This function refuses all of them.
/// Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3; miniz 3.0.2 as LibTorch 2.11 calls it.
void verify_torch_archive(std::string_view bytes, const std::string& file);

}  // namespace bert
