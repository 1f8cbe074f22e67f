// Members of zip archives of public data sets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bert {

struct UnpackedFile {
  std::string path;
  int64_t bytes = 0;
  std::string verified_by;  // "sha256" where a checksum is published, else "crc32"
  std::string digest;       // of a published checksum
};

struct UnpackedArchive {
  std::vector<UnpackedFile> files;
  int64_t left_out = 0;  // macOS's own files (__MACOSX/, .DS_Store), which some archives contain
};

/// Unpacks the archive `path` into `directory`, which may be absent. Names of members lose a first directory that all
/// of them share. `sha256` has the published checksums of members, by their name without that directory.
///
/// Each file is whole or absent, as AtomicFile makes it, and has the archive's CRC-32. A file that is there with the
/// right size and CRC-32 is left as it is. Throws DataError for a damaged archive, for a member whose checksum is not
/// the published one or that is missing, and for what the archives of data sets do not have: names that lead out of
/// `directory`, links and encryption. Throws IoError before the work if the disk has no room.
UnpackedArchive unpack_zip(const std::string& path, const std::string& directory,
                           const std::map<std::string, std::string>& sha256);

}  // namespace bert
