// Unpacks bzip2 on all processors.
//
// Note [Blocks of bzip2]
// A bzip2 file is one or more streams. A stream is "BZh" and a digit, blocks of at most 900 kB each, and an end mark with
// a checksum of the blocks' checksums. Blocks begin with 48 bits of pi at any bit, not at a byte, and nothing says where.
// A block needs nothing of the blocks before it. So the file is cut at every place that looks like the mark of a block
// or of an end; each piece is made a stream of one block for libbz2, and the pieces are unpacked in parallel. Data may
// contain the mark by chance: libbz2 then refuses the piece, and it is tried together with the pieces after it.
// A block of equal bytes unpacks to up to 46 MB. A text of more than kMostAhead waits for its turn, so that blocks that are
// unpacked ahead take a bounded memory.
// Every block's checksum is checked by libbz2, every stream's checksum here.
// Source: bzip2-1.0.8's decompress.c; J. Gilchrist, "Parallel data compression with bzip2" (2004) for the idea.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/corpus/worker_pool.h"

namespace bert {

/// Reads the next bytes of a file, at most `bytes`. Returns fewer only at the end of the file.
using ReadBytes = std::function<size_t(char* to, size_t bytes)>;

/// A place where a reader can begin: the beginning of the file, or of a block.
struct Bzip2Place {
  int64_t bit = 0;        // in the file
  uint32_t checksum = 0;  // of the stream's blocks before it
};

/// Bytes of a block that are unpacked ahead. Blocks of text have about 1 MB.
inline constexpr size_t kMostAhead = size_t{4} << 20;

/// The text of a block. Empty if libbz2 refuses the block, or if the text is too long.
struct UnpackedBlock {
  std::optional<std::string> text;
  bool is_long = false;
};

class Bzip2Reader {
 public:
  /// `name` is the file's name in messages. `pool` must outlive the reader. `read` begins with the byte that has the bit
  /// of `begin`.
  Bzip2Reader(std::string name, ReadBytes read, WorkerPool& pool, Bzip2Place begin = {});

  /// The next unpacked bytes, or nothing at the end of the file. Throws DataError with the byte offset in the compressed
  /// file if it is damaged, cut off, or goes on after the end of a stream with something else than a stream.
  std::optional<std::string> next();
  /// The place of the block that next() has returned last.
  [[nodiscard]] Bzip2Place place() const { return place_; }

 private:
  /// The bits of the file from one mark to the next.
  struct Piece {
    int64_t begin_bit = 0;  // in the file, of the mark
    int64_t bits = 0;       // the mark included
    // The first bit is bit begin_bit % 8 of the first byte, counted from the highest. One byte more than the bits need.
    std::shared_ptr<const std::string> bytes;
    bool is_end = false;  // begins with the mark of a stream's end
    bool at_end_of_file = false;
    std::future<UnpackedBlock> text;  // of a block
  };

  void fill();
  std::optional<int64_t> find_mark(int64_t from_bit);
  void cut_piece();
  void check_header(const Piece& piece, int64_t bit) const;
  void end_stream(const Piece& piece);
  std::string text_of_block(Piece piece);
  [[noreturn]] void fail(int64_t bit, const std::string& why) const;

  std::string name_;
  ReadBytes read_;
  WorkerPool& pool_;
  std::string window_;  // bytes of the file from window_begin_ on
  int64_t window_begin_;
  int64_t scanned_bit_;  // no mark begins before this bit, but those found
  int64_t piece_bit_;    // begin of the piece that is not cut yet
  bool end_of_file_ = false;
  bool all_cut_ = false;  // the last piece is in pieces_
  std::deque<Piece> pieces_;
  bool began_;          // the piece before the first mark is taken
  uint32_t combined_;   // checksum of the stream's blocks
  Bzip2Place place_{};  // of the last block
};

}  // namespace bert
