#include "data/corpus/bzip2_reader.h"

#include <bzlib.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr uint64_t kBlockMark = 0x314159265359, kEndMark = 0x177245385090;  // digits of pi and of its square root
constexpr int64_t kMarkBits = 48, kChecksumBits = 32, kHeaderBits = 32;
constexpr size_t kReadBytes = size_t{1} << 20;
/// A block has at most 900,000 symbols of at most 20 bits each, and its tables.
constexpr int64_t kMostBlockBits = int64_t{900'000} * 20 + (int64_t{1} << 20);

/// Marks by chance in one block. One is there once in 2^48 bits.
constexpr int kMostJoined = 16;

/// Bits from `bit` on, at most 64, of bytes whose highest bit is bit 0.
uint64_t bits_at(std::string_view bytes, int64_t bit, int count) {
  uint64_t value = 0;
  for (int64_t at = bit; at < bit + count;) {
    const auto byte = static_cast<uint8_t>(bytes[static_cast<size_t>(at / 8)]);
    const int take = static_cast<int>(std::min<int64_t>(8 - at % 8, bit + count - at));
    const int shift = static_cast<int>(8 - at % 8) - take;
    value = value << take | ((static_cast<uint32_t>(byte) >> shift) & ((1U << take) - 1));
    at += take;
  }
  return value;
}

/// Appends bits to bytes, the highest first.
class BitWriter {
 public:
  void put(uint64_t value, int count) {
    while (count > 0) {
      const int take = std::min(8 - used_, count);
      const auto part = static_cast<uint32_t>(value >> (count - take)) & ((1U << take) - 1);
      if (used_ == 0) bytes_ += '\0';
      bytes_.back() = static_cast<char>(static_cast<uint8_t>(bytes_.back()) | (part << (8 - used_ - take)));
      used_ = (used_ + take) % 8;
      count -= take;
    }
  }
  std::string bytes_;

 private:
  int used_ = 0;  // bits of the last byte, 0 if it is full
};

/// `bits` bits from bit `begin` of `bytes` on, moved to begin at a byte, as the only block of a stream.
std::string stream_of_block(std::string_view bytes, int64_t begin, int64_t bits) {
  BitWriter out;
  out.bytes_.reserve(bytes.size() + 16);
  out.bytes_ = "BZh9";
  const int shift = static_cast<int>(begin % 8);
  const size_t whole = static_cast<size_t>(bits / 8);
  for (size_t i = 0; i < whole; ++i) {
    const auto high = static_cast<uint8_t>(bytes[i]);
    const auto low = shift == 0 ? uint8_t{0} : static_cast<uint8_t>(bytes[i + 1]);
    out.bytes_ += static_cast<char>((high << shift) | (low >> (8 - shift)));
  }
  const int rest = static_cast<int>(bits % 8);
  out.put(bits_at(bytes, shift + static_cast<int64_t>(whole) * 8, rest), rest);
  out.put(kEndMark, static_cast<int>(kMarkBits));
  out.put(bits_at(bytes, shift + kMarkBits, kChecksumBits), static_cast<int>(kChecksumBits));
  return std::move(out.bytes_);
}

/// The text of a block, or nothing if the bits are not exactly one block with a right checksum, or if the text has more
/// than `most` bytes.
UnpackedBlock unpack_block(std::string_view bytes, int64_t begin, int64_t bits, size_t most) {
  if (bits < kMarkBits + kChecksumBits) return {};
  std::string packed = stream_of_block(bytes, begin, bits);
  bz_stream stream{};
  if (BZ2_bzDecompressInit(&stream, 0, 0) != BZ_OK) throw std::bad_alloc();
  stream.next_in = packed.data();
  stream.avail_in = static_cast<unsigned>(packed.size());
  std::string text(size_t{1} << 20, '\0');
  size_t size = 0;
  int status = BZ_OK;
  while (status == BZ_OK && size <= most) {
    if (size == text.size()) text.resize(text.size() * 2);
    stream.next_out = text.data() + size;
    stream.avail_out = static_cast<unsigned>(text.size() - size);
    status = BZ2_bzDecompress(&stream);
    const bool stuck = stream.avail_in == 0 && stream.avail_out > 0;
    size = text.size() - stream.avail_out;
    if (status == BZ_OK && stuck) break;
  }
  const bool whole = status == BZ_STREAM_END && stream.avail_in == 0;
  BZ2_bzDecompressEnd(&stream);
  if (status == BZ_MEM_ERROR) throw std::bad_alloc();
  if (!whole) return {.text = std::nullopt, .is_long = size > most};
  text.resize(size);
  return {.text = std::move(text)};
}

/// Every mark covers five whole bytes, wherever it begins in a byte. Entry [byte] has bit s set if `byte` is the second
/// byte of a mark that begins at bit s of the first.
constexpr std::array<uint8_t, 256> second_bytes() {
  std::array<uint8_t, 256> table{};
  for (const uint64_t mark : {kBlockMark, kEndMark}) {
    for (int shift = 0; shift < 8; ++shift) table[(mark >> (32 + shift)) & 0xFF] |= static_cast<uint8_t>(1U << shift);
  }
  return table;
}
constexpr auto kSecondBytes = second_bytes();

}  // namespace

Bzip2Reader::Bzip2Reader(std::string name, ReadBytes read, WorkerPool& pool, Bzip2Place begin)
    : name_(std::move(name)),
      read_(std::move(read)),
      pool_(pool),
      window_begin_(begin.bit / 8),
      scanned_bit_(begin.bit == 0 ? 0 : begin.bit + 1),  // the mark of the first block is found
      piece_bit_(begin.bit),
      began_(begin.bit > 0),
      combined_(begin.checksum) {}

void Bzip2Reader::fail(int64_t bit, const std::string& why) const { throw DataError(name_, bit / 8, why); }

/// Drops the bytes before the piece and reads more.
void Bzip2Reader::fill() {
  const int64_t done = piece_bit_ / 8 - window_begin_;
  window_.erase(0, static_cast<size_t>(done));
  window_begin_ += done;
  const size_t had = window_.size();
  window_.resize(had + kReadBytes);
  const size_t got = read_(window_.data() + had, kReadBytes);
  window_.resize(had + got);
  end_of_file_ = got < kReadBytes;
}

/// The first mark at or after `from_bit` that lies in the window. Remembers how far it looked.
std::optional<int64_t> Bzip2Reader::find_mark(int64_t from_bit) {
  constexpr int64_t kMarkBytes = 7;  // that a mark may touch; a mark is never the end of the file
  int64_t byte = from_bit / 8 - window_begin_;
  for (; byte + kMarkBytes <= static_cast<int64_t>(window_.size()); ++byte) {
    uint32_t shifts = kSecondBytes[static_cast<uint8_t>(window_[static_cast<size_t>(byte + 1)])];
    for (; shifts != 0; shifts &= shifts - 1) {
      const int64_t bit = byte * 8 + std::countr_zero(shifts);
      const uint64_t mark = bits_at(window_, bit, static_cast<int>(kMarkBits));
      const bool found = mark == kBlockMark || mark == kEndMark;
      if (found && window_begin_ * 8 + bit >= from_bit) return window_begin_ * 8 + bit;
    }
  }
  scanned_bit_ = std::max(from_bit, (window_begin_ + byte) * 8);
  return std::nullopt;
}

/// Cuts the next piece and begins to unpack it.
void Bzip2Reader::cut_piece() {
  std::optional<int64_t> end;
  // Without a mark for longer than a block, the rest of the file is one piece that is refused in its turn.
  while (!(end = find_mark(scanned_bit_)) && !end_of_file_ && scanned_bit_ - piece_bit_ <= kMostBlockBits) fill();
  const int64_t end_bit = end.value_or((window_begin_ + static_cast<int64_t>(window_.size())) * 8);
  const auto first = static_cast<size_t>(piece_bit_ / 8 - window_begin_);
  const auto last = static_cast<size_t>((end_bit + 7) / 8 - window_begin_);
  Piece piece;
  piece.begin_bit = piece_bit_;
  piece.bits = end_bit - piece_bit_;
  piece.bytes = std::make_shared<const std::string>(window_.substr(first, last - first) + '\0');
  piece.at_end_of_file = !end.has_value();
  piece.is_end =
      piece.bits >= kMarkBits && bits_at(*piece.bytes, piece_bit_ % 8, static_cast<int>(kMarkBits)) == kEndMark;
  if (piece_bit_ > 0 && !piece.is_end) {
    piece.text = pool_.submit([bytes = piece.bytes, begin = piece.begin_bit % 8, bits = piece.bits] {
      return unpack_block(*bytes, begin, bits, kMostAhead);
    });
  }
  all_cut_ = piece.at_end_of_file;
  piece_bit_ = end_bit;
  scanned_bit_ = end_bit + 1;
  pieces_.push_back(std::move(piece));
}

/// Checks that the rest of a piece, from a bit of the file on, is the header of a stream.
void Bzip2Reader::check_header(const Piece& piece, int64_t bit) const {
  const int64_t end = piece.begin_bit + piece.bits;
  const auto at = static_cast<size_t>((bit - piece.begin_bit / 8 * 8) / 8);
  const std::string_view header = std::string_view(*piece.bytes).substr(at, 4);
  const bool good = bit % 8 == 0 && header.starts_with("BZh") && header[3] >= '1' && header[3] <= '9';
  if (good && piece.at_end_of_file) fail(end, "the file ends after the header of a stream of bzip2; it is cut off");
  if (!good || end - bit != kHeaderBits)
    fail(bit, bit == 0 ? "is not bzip2" : "something other than bzip2 follows the end of a stream of bzip2");
}

/// Checks the end mark and what follows it.
void Bzip2Reader::end_stream(const Piece& piece) {
  const int64_t end = piece.begin_bit + piece.bits;
  if (piece.bits < kMarkBits + kChecksumBits)
    fail(piece.begin_bit, "the file ends inside the end mark of a stream of bzip2; it is cut off");
  const auto stored =
      static_cast<uint32_t>(bits_at(*piece.bytes, piece.begin_bit % 8 + kMarkBits, static_cast<int>(kChecksumBits)));
  if (stored != combined_)
    fail(piece.begin_bit, fmt::format("the checksum of a stream of bzip2 is {:08x}, want {:08x}: the file is damaged",
                                      combined_, stored));
  combined_ = 0;
  const int64_t after = (piece.begin_bit + kMarkBits + kChecksumBits + 7) / 8 * 8;  // streams end with a byte
  if (!piece.at_end_of_file || after < end) check_header(piece, after);
}

/// The text of the block that begins with `piece`. If libbz2 refuses the piece, the mark after it may be data: takes as
/// many pieces as make a block.
std::string Bzip2Reader::text_of_block(Piece piece) {
  place_ = {piece.begin_bit, combined_};
  constexpr size_t kAnyLength = SIZE_MAX;
  UnpackedBlock ahead = pool_.wait(piece.text);
  if (ahead.is_long) ahead = unpack_block(*piece.bytes, piece.begin_bit % 8, piece.bits, kAnyLength);
  std::optional<std::string> text = std::move(ahead.text);
  for (int joined = 0; !text; ++joined) {
    if (piece.at_end_of_file)
      fail(piece.begin_bit, "the block of bzip2 that begins here is damaged, or the file is cut off after it");
    if (pieces_.empty()) cut_piece();
    Piece next = std::move(pieces_.front());
    pieces_.pop_front();
    if (joined == kMostJoined || piece.bits + next.bits > kMostBlockBits)
      fail(piece.begin_bit, "the block of bzip2 that begins here is damaged");
    std::string bytes = *piece.bytes;
    bytes.pop_back();
    if (next.begin_bit % 8 != 0) bytes.pop_back();  // both pieces have the byte that they share
    piece.bytes = std::make_shared<const std::string>(bytes + *next.bytes);
    piece.bits += next.bits;
    piece.at_end_of_file = next.at_end_of_file;
    text = unpack_block(*piece.bytes, piece.begin_bit % 8, piece.bits, kAnyLength).text;
  }
  const auto checksum =
      static_cast<uint32_t>(bits_at(*piece.bytes, piece.begin_bit % 8 + kMarkBits, static_cast<int>(kChecksumBits)));
  combined_ = std::rotl(combined_, 1) ^ checksum;
  return std::move(*text);
}

std::optional<std::string> Bzip2Reader::next() {
  while (true) {
    const auto ahead = static_cast<size_t>(2 * pool_.num_threads());
    while (!all_cut_ && pieces_.size() <= ahead) cut_piece();
    if (pieces_.empty()) return std::nullopt;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    if (!began_) {
      began_ = true;
      check_header(piece, 0);
    } else if (piece.is_end) {
      end_stream(piece);
    } else {
      return text_of_block(std::move(piece));
    }
  }
}

}  // namespace bert
