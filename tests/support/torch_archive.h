// Makes a zip archive as LibTorch writes it, without LibTorch.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace bert::testing {

struct ArchiveMember {
  std::string name, content;
  bool deflated = false;  // LibTorch does so with code
};

inline std::string little_endian(uint64_t value, size_t width) {
  std::string bytes;
  for (size_t i = 0; i < width; ++i, value >>= 8) bytes += static_cast<char>(value & 0xff);
  return bytes;
}

/// Raw deflate.
inline std::string deflated(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string result(content.size() + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

/// `wide`: sizes and offsets in the directory have 64 bits, as for members beyond 4 GB.
inline std::string torch_archive(const std::vector<ArchiveMember>& members, bool wide = false) {
  constexpr size_t kAlignment = 64, kLocalBytes = 30, kMost32 = 0xffffffff;
  std::string bytes, directory;
  for (const ArchiveMember& member : members) {
    const std::string data = member.deflated ? deflated(member.content) : member.content;
    const auto crc =
        static_cast<uint64_t>(crc32_z(0, reinterpret_cast<const Bytef*>(member.content.data()), member.content.size()));
    // Version, flags (a descriptor follows; UTF-8), method, time and date.
    const std::string common = little_endian(member.deflated ? 20 : 0, 2) + little_endian(0x0808, 2) +
                               little_endian(member.deflated ? 8 : 0, 2) + little_endian(0, 4);
    const uint64_t offset = bytes.size();
    const size_t header = kLocalBytes + member.name.size() + 4;
    const size_t padding = (kAlignment - (bytes.size() + header) % kAlignment) % kAlignment;
    bytes += "PK\x03\x04" + common + little_endian(0, 12) + little_endian(member.name.size(), 2) +
             little_endian(4 + padding, 2) + member.name + "FB" + little_endian(padding, 2) +
             std::string(padding, 'Z') + data;
    bytes +=
        "PK\x07\x08" + little_endian(crc, 4) + little_endian(data.size(), 4) + little_endian(member.content.size(), 4);
    std::string extra;
    if (wide) {
      extra = little_endian(1, 2) + little_endian(24, 2) + little_endian(member.content.size(), 8) +
              little_endian(data.size(), 8) + little_endian(offset, 8);
    }
    directory += "PK\x01\x02" + little_endian(0, 2) + common + little_endian(crc, 4) +
                 little_endian(wide ? kMost32 : data.size(), 4) +
                 little_endian(wide ? kMost32 : member.content.size(), 4) + little_endian(member.name.size(), 2) +
                 little_endian(extra.size(), 2) + little_endian(0, 10) + little_endian(wide ? kMost32 : offset, 4) +
                 member.name + extra;
  }
  const uint64_t begin = bytes.size(), end64 = begin + directory.size();
  bytes += directory;
  bytes += "PK\x06\x06" + little_endian(44, 8) + little_endian(0x031e, 2) + little_endian(45, 2) + little_endian(0, 8) +
           little_endian(members.size(), 8) + little_endian(members.size(), 8) + little_endian(directory.size(), 8) +
           little_endian(begin, 8);
  bytes += "PK\x06\x07" + little_endian(0, 4) + little_endian(end64, 8) + little_endian(1, 4);
  bytes += "PK\x05\x06" + little_endian(0, 4) + little_endian(members.size(), 2) + little_endian(members.size(), 2) +
           little_endian(directory.size(), 4) + little_endian(begin, 4) + little_endian(0, 2);
  return bytes;
}

/// Members like those of an exported model.
inline std::vector<ArchiveMember> archive_members() {
  std::string code;
  for (int line = 0; line < 40; ++line) code += "  _" + std::to_string(line * 7 % 11) + " = torch.add(x, y)\n";
  return {{"bert/version", "3\n"},
          {"bert/data.pkl", std::string("\x80\x02"
                                        "c__torch__.bert\nM\n)\x81.",
                                        23)},
          {"bert/code/__torch__/bert.py", code, true},
          {"bert/data/0", std::string(200, '\x3f')},
          {"bert/data/1", ""},
          {"bert/extra/vocab.txt", "[PAD]\n[UNK]\n"}};
}

}  // namespace bert::testing
