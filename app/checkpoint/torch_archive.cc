#include "app/checkpoint/torch_archive.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>

#include "data/io/error.h"

namespace bert {
namespace {

constexpr uint64_t kLocal = 0x04034b50, kDescriptor = 0x08074b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;              // signatures
constexpr uint64_t kEndBytes = 22, kLocator64Bytes = 20, kEnd64Bytes = 56;    // sizes of records
constexpr uint64_t kMadeBy64 = 0x031e, kNeeded64 = 45, kNeededDeflated = 20;  // versions that miniz writes
constexpr uint64_t kFlagDescriptor = 0x0008, kFlagUtf8 = 0x0800;
constexpr uint64_t kStored = 0, kDeflated = 8;  // methods
constexpr uint64_t kExtra64 = 0x0001,
                   kExtraPadding = 0x4246;  // kExtraPadding is "FB": LibTorch's padding, which aligns tensors
constexpr uint64_t kMost16 = 0xffff, kMost32 = 0xffffffff;  // this value says that a 64-bit field has the real one

/// A reader of consecutive little-endian fields.
class Fields {
 public:
  Fields(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  [[nodiscard]] uint64_t position() const { return position_; }
  void seek(uint64_t position) { position_ = position; }

  std::string_view take(uint64_t count, const char* what) {
    if (count > bytes_.size() - position_)
      fail(position_, fmt::format("{} of {} bytes goes past the end", what, count));
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  uint64_t integer(size_t width, const char* what) {
    uint64_t value = 0;
    int shift = 0;
    for (const char byte : take(width, what)) {
      value |= uint64_t{static_cast<unsigned char>(byte)} << shift;
      shift += 8;
    }
    return value;
  }
  void expect(size_t width, uint64_t want, const char* what) {
    const uint64_t begin = position_, got = integer(width, what);
    if (got != want) fail(begin, fmt::format("{} is {:#x}, expected {:#x}", what, got, want));
  }
  [[noreturn]] void fail(uint64_t position, const std::string& why) const {
    throw DataError(file_, static_cast<int64_t>(position),
                    "is no archive of PyTorch, or a damaged one: " + why + "; copy or export it again");
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
  uint64_t position_ = 0;
};

/// An entry of the central directory.
struct Member {
  uint64_t flags = 0, method = 0, time = 0, date = 0, crc = 0, stored_size = 0, size = 0, offset = 0;
  std::string_view name;
  [[nodiscard]] uint64_t version_needed() const { return method == kDeflated ? kNeededDeflated : 0; }
};

struct Directory {
  uint64_t members = 0, begin = 0, end = 0;
};

/// Reads the records after the central directory.
Directory read_end(Fields& fields, uint64_t size) {
  if (size < kEndBytes) fields.fail(size, "it ends before an archive could");
  fields.seek(size - kEndBytes);
  fields.expect(4, kEnd, "the signature of the archive's end");
  fields.expect(4, 0, "the numbers of disks");
  const uint64_t members = fields.integer(2, "members");
  fields.expect(2, members, "the number of members");
  const uint64_t bytes = fields.integer(4, "directory"), begin = fields.integer(4, "directory");
  fields.expect(2, 0, "the length of the comment");
  Directory directory{.members = members, .begin = begin, .end = size - kEndBytes};
  uint64_t directory_bytes = bytes;
  if (size >= kEndBytes + kLocator64Bytes + kEnd64Bytes) {
    const uint64_t locator = size - kEndBytes - kLocator64Bytes, end64 = locator - kEnd64Bytes;
    fields.seek(locator);
    if (fields.integer(4, "signature") == kLocator64) {
      fields.expect(4, 0, "the disk of the 64-bit end");
      fields.expect(8, end64, "the place of the 64-bit end");
      fields.expect(4, 1, "the number of disks");
      fields.seek(end64);
      fields.expect(4, kEnd64, "the signature of the 64-bit end");
      fields.expect(8, kEnd64Bytes - 12, "the length of the 64-bit end");  // without signature and length
      fields.expect(2, kMadeBy64, "the version of the 64-bit end");
      fields.expect(2, kNeeded64, "the version that the 64-bit end needs");
      fields.expect(8, 0, "the numbers of disks");
      directory.members = fields.integer(8, "members");
      fields.expect(8, directory.members, "the number of members");
      directory_bytes = fields.integer(8, "directory");
      directory.begin = fields.integer(8, "directory");
      directory.end = end64;
      if (members != std::min(directory.members, kMost16) || bytes != std::min(directory_bytes, kMost32) ||
          begin != std::min(directory.begin, kMost32)) {
        fields.fail(end64, "the archive's two ends differ");
      }
    }
  }
  if (directory.begin > directory.end || directory_bytes != directory.end - directory.begin)
    fields.fail(size - kEndBytes, "the directory does not lie before the archive's end");
  return directory;
}

Member read_entry(Fields& fields) {
  Member member;
  fields.expect(4, kCentral, "the signature of an entry");
  fields.expect(2, 0, "the version of an entry");
  const uint64_t needed = fields.integer(2, "version");
  member.flags = fields.integer(2, "flags");
  if ((member.flags & ~(kFlagDescriptor | kFlagUtf8)) != 0)
    fields.fail(fields.position() - 2, fmt::format("flags {:#x} are not LibTorch's", member.flags));
  member.method = fields.integer(2, "method");
  if (member.method != kStored && member.method != kDeflated)
    fields.fail(fields.position() - 2, fmt::format("compression method {} is not LibTorch's", member.method));
  if (needed != member.version_needed())
    fields.fail(fields.position() - 6, fmt::format("version {} is not LibTorch's", needed));
  member.time = fields.integer(2, "time");
  member.date = fields.integer(2, "date");
  member.crc = fields.integer(4, "checksum");
  member.stored_size = fields.integer(4, "size");
  member.size = fields.integer(4, "size");
  const uint64_t name_size = fields.integer(2, "name"), extra_size = fields.integer(2, "extra field");
  fields.expect(2, 0, "the length of an entry's comment");
  fields.expect(2, 0, "an entry's disk");
  fields.expect(2, 0, "an entry's internal attributes");
  fields.expect(4, 0, "an entry's external attributes");
  member.offset = fields.integer(4, "offset");
  member.name = fields.take(name_size, "a name");
  const uint64_t extra_end = fields.position() + extra_size;
  if (extra_size > 0) {
    fields.expect(2, kExtra64, "the kind of an entry's extra field");
    fields.expect(2, extra_size - 4, "the length of an entry's extra field");
    for (uint64_t* value : {&member.size, &member.stored_size, &member.offset}) {
      if (*value == kMost32) *value = fields.integer(8, "64-bit size");
    }
  }
  if (fields.position() != extra_end) fields.fail(extra_end, "an entry's extra field has another length");
  if (member.method == kStored && member.stored_size != member.size) fields.fail(extra_end, "an entry has two sizes");
  return member;
}

/// Reads the extra fields of a local header. Returns true if they have 64-bit sizes.
bool read_extra(Fields& fields, uint64_t size) {
  const uint64_t end = fields.position() + size;
  bool wide = false;
  while (fields.position() < end) {
    const uint64_t begin = fields.position(), kind = fields.integer(2, "extra field");
    const std::string_view content = fields.take(fields.integer(2, "extra field"), "an extra field");
    wide = wide || kind == kExtra64;
    if (kind != kExtra64 && (kind != kExtraPadding || content.find_first_not_of('Z') != std::string_view::npos))
      fields.fail(begin, "an extra field is not LibTorch's");
  }
  if (fields.position() != end) fields.fail(end, "a member's extra field has another length");
  return wide;
}

/// True if `compressed` inflates, to its last bit, to `size` bytes with the checksum `crc`.
bool inflates_to(std::string_view compressed, uint64_t size, uint64_t crc) {
  if (compressed.empty() || compressed.size() > std::numeric_limits<uInt>::max())
    return false;  // deflated members are code of a few KB
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(compressed.data()));
  stream.avail_in = static_cast<uInt>(compressed.size());
  std::array<Bytef, 1 << 16> piece;
  uint64_t inflated = 0;
  uLong sum = crc32_z(0, nullptr, 0);
  int result = Z_OK, idle = 0, unused_bits = 0;
  while (result != Z_STREAM_END && idle < 2 && inflated <= size) {
    stream.next_out = piece.data();
    stream.avail_out = static_cast<uInt>(piece.size());
    result = inflate(&stream, Z_BLOCK);  // one block for each call: otherwise zlib does not tell the unused bits
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) break;
    idle = result == Z_BUF_ERROR ? idle + 1 : 0;
    const size_t count = piece.size() - stream.avail_out;
    sum = crc32_z(sum, piece.data(), count);
    inflated += count;
    constexpr int kEndOfBlock = 128, kLastBlock = 64, kUnusedBits = 7;
    if ((stream.data_type & kEndOfBlock) != 0 && (stream.data_type & kLastBlock) != 0)
      unused_bits = stream.data_type & kUnusedBits;
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END && stream.avail_in == 0 && inflated == size && sum == crc &&
         static_cast<unsigned char>(compressed.back()) >> (8 - unused_bits) == 0;
}

/// Reads the member at the current position, and checks its header, and the sizes and checksum after its data.
TorchMember read_member(Fields& fields, const Member& member) {
  const uint64_t begin = fields.position();
  if (member.offset != begin) fields.fail(begin, fmt::format("the directory has a member at {}", member.offset));
  const bool described = (member.flags & kFlagDescriptor) != 0;
  fields.expect(4, kLocal, "the signature of a member");
  fields.expect(2, member.version_needed(), "the version that a member needs");
  fields.expect(2, member.flags, "a member's flags");
  fields.expect(2, member.method, "a member's compression method");
  fields.expect(2, member.time, "a member's time");
  fields.expect(2, member.date, "a member's date");
  fields.expect(4, described ? 0 : member.crc, "a member's checksum");
  fields.expect(4, described ? 0 : std::min(member.stored_size, kMost32), "a member's size");
  fields.expect(4, described ? 0 : std::min(member.size, kMost32), "a member's size");
  fields.expect(2, member.name.size(), "the length of a member's name");
  const uint64_t extra_size = fields.integer(2, "extra field"), name_begin = fields.position();
  if (fields.take(member.name.size(), "a name") != member.name)
    fields.fail(name_begin, "a member's name is not the directory's");
  const bool wide = read_extra(fields, extra_size);
  const uint64_t data_begin = fields.position();
  fields.take(member.stored_size, "a member");
  const TorchMember result{.name = member.name,
                           .begin = data_begin,
                           .stored_bytes = member.stored_size,
                           .bytes = member.size,
                           .crc = member.crc,
                           .deflated = member.method == kDeflated};
  if (!described) return result;
  fields.expect(4, kDescriptor, "the signature behind a member");
  fields.expect(4, member.crc, "the checksum behind a member");
  fields.expect(wide ? 8 : 4, member.stored_size, "the size behind a member");
  fields.expect(wide ? 8 : 4, member.size, "the size behind a member");
  return result;
}

}  // namespace

std::vector<TorchMember> torch_members(std::string_view bytes, const std::string& file) {
  Fields entries(bytes, file), members(bytes, file);
  const Directory directory = read_end(entries, bytes.size());
  entries.seek(directory.begin);
  std::vector<TorchMember> found;
  for (uint64_t i = 0; i < directory.members; ++i) found.push_back(read_member(members, read_entry(entries)));
  if (entries.position() != directory.end) entries.fail(entries.position(), "the directory has another length");
  if (members.position() != directory.begin)
    members.fail(members.position(), "the members do not end where the directory begins");
  return found;
}

void verify_torch_member(std::string_view bytes, const std::string& file, const TorchMember& member) {
  const std::string_view data = bytes.substr(member.begin, member.stored_bytes);
  const bool right = member.deflated
                         ? inflates_to(data, member.bytes, member.crc)
                         : crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()) == member.crc;
  if (right) return;
  const nlohmann::json name = member.name;  // escaped: its raw bytes must not reach a terminal
  Fields(bytes, file)
      .fail(member.begin, "the bytes of " + name.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) +
                              " are not those of its checksum");
}

void verify_torch_archive(std::string_view bytes, const std::string& file) {
  for (const TorchMember& member : torch_members(bytes, file)) verify_torch_member(bytes, file, member);
}

}  // namespace bert
