#include "app/interop/files/leveldb_table.h"

#include <fmt/format.h>
#include <snappy.h>

#include <cstring>
#include <string>

#include "data/io/crc32c.h"
#include "data/io/error.h"
#include "data/io/wire.h"

namespace bert {
namespace {

constexpr size_t kFooterBytes = 48;
constexpr uint64_t kMagic = 0xdb4775248b80fb57;
constexpr size_t kTrailerBytes = 5;  // of a block: its type and its checksum
constexpr char kPlain = 0, kSnappy = 1;
constexpr size_t kMostBlockBytes = size_t{64} << 20;  // unpacked; TensorFlow's blocks have 256 KB
constexpr size_t kMostKeyBytes = size_t{64} << 10;

[[noreturn]] void fail(size_t offset, const std::string& what) {
  throw DataError(fmt::format("byte {} of the index: {}", offset, what));
}

template <class T>
T number_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// The place of a block, without its trailer.
struct Handle {
  uint64_t offset = 0, size = 0;
  [[nodiscard]] uint64_t end() const { return offset + size + kTrailerBytes; }
};

Handle take_handle(wire::Fields& numbers) {
  const uint64_t offset = numbers.varint();
  return {offset, numbers.varint()};
}

/// The content of a block, unpacked into `unpacked` where it is packed. The block must begin at `begin`.
std::string_view read_block(std::string_view bytes, const Handle& handle, uint64_t begin, std::string& unpacked) {
  if (handle.offset != begin)
    fail(begin, fmt::format("the next block is said to be at byte {}. The file is damaged.", handle.offset));
  const uint64_t room = begin > bytes.size() - kFooterBytes ? 0 : bytes.size() - kFooterBytes - begin;
  if (room < kTrailerBytes || handle.size > room - kTrailerBytes)
    fail(begin, fmt::format("a block of {} bytes goes past the end. The file is damaged.", handle.size));
  const std::string_view stored = bytes.substr(begin, handle.size + 1);  // with its type
  if (number_at<uint32_t>(bytes, begin + stored.size()) != masked_crc32c(crc32c(stored.data(), stored.size())))
    fail(begin, "the checksum of the block does not match. The file is damaged: copy it again.");
  const std::string_view content = stored.substr(0, handle.size);
  if (stored.back() == kPlain) return content;
  if (stored.back() != kSnappy) fail(begin, fmt::format("a block of unknown type {}", int{stored.back()}));
  size_t size = 0;
  if (!snappy::GetUncompressedLength(content.data(), content.size(), &size) || size > kMostBlockBytes)
    fail(begin, fmt::format("a packed block has {} bytes; at most {} are read", size, kMostBlockBytes));
  unpacked.resize(size);
  if (!snappy::RawUncompress(content.data(), content.size(), unpacked.data()))
    fail(begin, "the block cannot be unpacked. The file is damaged.");
  return unpacked;
}

/// Calls `take` for every entry of a block. `begin` stands in messages.
template <class Take>
void read_entries(std::string_view block, uint64_t begin, const Take& take) {
  constexpr size_t kNumber = sizeof(uint32_t);
  if (block.size() < kNumber) fail(begin, "a block is too short");
  const uint64_t restarts = number_at<uint32_t>(block, block.size() - kNumber);
  if (restarts > block.size() / kNumber - 1) fail(begin, "a block has more restarts than room");
  wire::Fields entries(block.substr(0, block.size() - kNumber * (restarts + 1)));
  std::string key;
  while (!entries.at_end()) {
    const uint64_t shared = entries.varint(), own = entries.varint(), value_bytes = entries.varint();
    if (shared > key.size()) fail(begin, "an entry shares more of its key than the entry before it has");
    const std::string_view rest = entries.take(own);
    if (shared + own > kMostKeyBytes) fail(begin, fmt::format("a name has more than {} bytes", kMostKeyBytes));
    key.resize(shared);
    key += rest;
    take(key, entries.take(value_bytes));
  }
}

}  // namespace

void read_leveldb_table(std::string_view bytes,
                        const std::function<void(std::string_view key, std::string_view value)>& take) {
  if (bytes.size() < kFooterBytes) fail(0, "the file is shorter than the end of every index");
  const size_t footer = bytes.size() - kFooterBytes;
  if (number_at<uint64_t>(bytes, bytes.size() - sizeof kMagic) != kMagic)
    fail(bytes.size() - sizeof kMagic, "the magic number of an index is missing. The file is cut off, or is no index.");
  const std::string_view places = bytes.substr(footer, kFooterBytes - sizeof kMagic);
  wire::Fields numbers(places);
  const Handle meta = take_handle(numbers), index = take_handle(numbers);
  std::string expected;  // the shortest spelling of the numbers, then zeros
  for (const uint64_t number : {meta.offset, meta.size, index.offset, index.size})
    wire::append_varint(expected, number);
  expected.resize(places.size(), '\0');
  if (places != expected) fail(footer, "the end of the index is damaged");

  std::string unpacked, unpacked_index, last_key;
  if (meta.offset > footer || meta.size > footer) fail(footer, "the second block from the end lies behind the end");
  const std::string_view blocks = read_block(bytes, index, meta.end(), unpacked_index);
  if (index.end() != footer) fail(footer, "the index does not end with its last block");
  uint64_t begin = 0;
  bool first = true;
  read_entries(blocks, index.offset, [&](std::string_view, std::string_view place) {
    wire::Fields fields(place);
    const Handle handle = take_handle(fields);
    if (!fields.at_end()) fail(index.offset, "an entry has bytes behind the place of its block");
    read_entries(read_block(bytes, handle, begin, unpacked), begin, [&](std::string_view key, std::string_view value) {
      if (!first && key <= last_key) fail(begin, "the keys are not in ascending order");
      first = false;
      last_key = key;
      take(key, value);
    });
    begin = handle.end();
  });
  read_entries(read_block(bytes, meta, begin, unpacked), begin, [&](std::string_view key, std::string_view) {
    fail(begin, fmt::format("a meta block \"{}\", which no checkpoint has", key));
  });
}

}  // namespace bert
