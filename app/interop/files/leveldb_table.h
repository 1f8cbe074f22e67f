// Tables of LevelDB: sorted keys and values in blocks. TensorFlow keeps the index of a checkpoint in one.
#pragma once

#include <functional>
#include <string_view>

namespace bert {

/// Calls `take` for every entry, in ascending order of the keys. Every block is compared with its checksum, and the
/// blocks must cover `bytes` without a gap, so that no byte is there without a meaning. The views live as long as the
/// call. Throws DataError with the byte and the problem.
///
/// LevelDB's own library is not used: it reads blocks that lie over each other, does not notice keys out of order, and
/// a fuzzer cannot see behind its checksums.
/// Source: LevelDB's doc/table_format.md; tensorflow/tsl/lib/io/format.h has the same constants.
void read_leveldb_table(std::string_view bytes,
                        const std::function<void(std::string_view key, std::string_view value)>& take);

}  // namespace bert
