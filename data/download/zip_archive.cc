#include "data/download/zip_archive.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <string_view>
#include <vector>

#include "data/download/digest.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

// APPNOTE.TXT 4.3.7, 4.3.12, 4.3.16: signatures, and bytes before the name.
constexpr std::string_view kLocalMark = "PK\3\4", kCentralMark = "PK\1\2", kEndMark = "PK\5\6";
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22;
constexpr size_t kLongestComment = 0xffff;
constexpr uint16_t kStored = 0, kDeflated = 8, kEncrypted = 1;
constexpr uint32_t kInZip64 = 0xffffffff;
constexpr size_t kPiece = size_t{1} << 18;

struct Member {
  std::string name;
  uint16_t method = 0;
  uint32_t crc = 0;
  int64_t packed_bytes = 0, bytes = 0, header_at = 0;
};

/// An archive in memory, read with checked bounds.
class Archive {
 public:
  explicit Archive(const std::string& path) : path_(path), file_(path), bytes_(file_.view()) { read_directory(); }

  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// The packed bytes of a member. Throws DataError.
  [[nodiscard]] std::string_view packed(const Member& member) const {
    const auto at = static_cast<size_t>(member.header_at);
    expect_mark(at, kLocalMark, kLocalBytes);
    // The lengths of the local header count, which may have other extra fields than the directory.
    const size_t data = at + kLocalBytes + number<uint16_t>(at + 26) + number<uint16_t>(at + 28);
    const auto size = static_cast<size_t>(member.packed_bytes);
    if (data > bytes_.size() || size > bytes_.size() - data)
      damaged(at, "a file reaches beyond the end of the archive");
    return bytes_.substr(data, size);
  }

  [[noreturn]] void damaged(size_t at, const std::string& message) const {
    throw DataError(path_, static_cast<int64_t>(at), message);
  }

 private:
  template <class Number>
  [[nodiscard]] Number number(size_t at) const {  // little-endian
    Number value = 0;
    for (size_t i = 0; i < sizeof(Number); ++i)
      value = static_cast<Number>(value | Number{static_cast<unsigned char>(bytes_[at + i])} << (8 * i));
    return value;
  }

  void expect_mark(size_t at, std::string_view mark, size_t header_bytes) const {
    if (at > bytes_.size() || bytes_.size() - at < header_bytes || bytes_.substr(at, mark.size()) != mark)
      damaged(at, "this is not a zip archive, or it is damaged");
  }

  /// The place of the record that ends the archive. A comment of up to 64 KiB follows it.
  [[nodiscard]] size_t end_record() const {
    for (size_t end = bytes_.rfind(kEndMark); end != std::string_view::npos; end = bytes_.rfind(kEndMark, end - 1)) {
      const size_t left = bytes_.size() - end;
      if (left >= kEndBytes && left - kEndBytes == number<uint16_t>(end + 20)) return end;
      if (left > kEndBytes + kLongestComment || end == 0) break;
    }
    damaged(0, "this is not a zip archive, or its end is missing");
  }

  void read_directory() {
    const size_t end = end_record();
    size_t at = number<uint32_t>(end + 16);
    for (uint16_t left = number<uint16_t>(end + 10); left > 0; --left) {
      expect_mark(at, kCentralMark, kCentralBytes);
      const size_t name_bytes = number<uint16_t>(at + 28);
      const size_t rest = size_t{number<uint16_t>(at + 30)} + number<uint16_t>(at + 32);
      if (bytes_.size() - at - kCentralBytes < name_bytes + rest) damaged(at, "the directory of the archive is cut");
      add_member(at, std::string(bytes_.substr(at + kCentralBytes, name_bytes)));
      at += kCentralBytes + name_bytes + rest;
    }
  }

  void add_member(size_t at, const std::string& name) {
    if (name.ends_with('/')) return;  // a directory
    check_name(at, name);
    const auto packed = number<uint32_t>(at + 20), bytes = number<uint32_t>(at + 24),
               header = number<uint32_t>(at + 42);
    const uint32_t mode = number<uint32_t>(at + 38) >> 16;  // of Unix
    if ((number<uint16_t>(at + 8) & kEncrypted) != 0) damaged(at, name + " is encrypted");
    if (packed == kInZip64 || bytes == kInZip64 || header == kInZip64) damaged(at, name + " is in the format ZIP64");
    if (S_ISLNK(mode)) damaged(at, name + " is a link");
    const auto method = number<uint16_t>(at + 10);
    if (method != kStored && method != kDeflated)
      damaged(at, fmt::format("{} is packed with method {}; 0 and 8 can be read", name, method));
    members_.push_back({name, method, number<uint32_t>(at + 16), packed, bytes, header});
  }

  void check_name(size_t at, const std::string& name) {
    bool plain = !name.empty() && name.find_first_of(std::string("\\\0", 2)) == std::string::npos &&
                 name.find("//") == std::string::npos;
    for (const auto& part : std::filesystem::path(name)) {
      plain = plain && part != ".." && part != "." && part != "/" && !part.empty();
    }
    if (!plain) damaged(at, "the name of a file leads out of its directory: " + name);
    if (!names_.insert(name).second) damaged(at, "two files have the name " + name);
  }

  std::string path_;
  MappedFile file_;
  std::string_view bytes_;
  std::vector<Member> members_;
  std::set<std::string> names_;
};

/// Calls take(piece) for the unpacked bytes of a member, and checks their number and CRC-32. Throws DataError.
void unpack_member(const Archive& archive, const Member& member,
                   const std::function<void(const char* data, size_t bytes)>& take) {
  const auto damaged = [&](const std::string& message) {
    archive.damaged(static_cast<size_t>(member.header_at), member.name + ": " + message);
  };
  const std::string_view packed = archive.packed(member);
  int64_t left = member.bytes;
  uLong crc = crc32(0, nullptr, 0);
  const auto pass_on = [&](const char* data, size_t bytes) {
    if (static_cast<int64_t>(bytes) > left) damaged("it has more bytes than the archive says");
    left -= static_cast<int64_t>(bytes);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(data), bytes);
    take(data, bytes);
  };
  if (member.method == kStored) {
    for (size_t at = 0; at < packed.size(); at += kPiece)
      pass_on(packed.data() + at, std::min(kPiece, packed.size() - at));
  } else {
    z_stream stream{};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
    const std::unique_ptr<z_stream, int (*)(z_stream*)> closing(&stream, inflateEnd);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(packed.size());  // below 4 GiB, as without ZIP64
    std::vector<char> piece(kPiece);
    for (int state = Z_OK; state != Z_STREAM_END;) {
      stream.next_out = reinterpret_cast<Bytef*>(piece.data());
      stream.avail_out = static_cast<uInt>(piece.size());
      state = inflate(&stream, Z_NO_FLUSH);
      if (state != Z_OK && state != Z_STREAM_END) damaged("its packed bytes are damaged or cut");
      pass_on(piece.data(), piece.size() - stream.avail_out);
    }
  }
  if (left != 0) damaged("it has fewer bytes than the archive says");
  if (crc != member.crc) damaged("its bytes are damaged: the CRC-32 is another");
}

/// The directory, with its slash, that all names begin with; "" if there is none.
std::string shared_directory(const std::vector<Member>& members) {
  if (members.empty()) return "";
  const std::string first = members.front().name.substr(0, members.front().name.find('/') + 1);
  const bool shared =
      std::all_of(members.begin(), members.end(), [&](const Member& member) { return member.name.starts_with(first); });
  return shared ? first : "";
}

bool is_of_macos(const std::string& name) {
  return name.starts_with("__MACOSX/") || std::filesystem::path(name).filename() == ".DS_Store";
}

/// True if `path` has the bytes of the member, as far as size and CRC-32 tell.
bool is_there(const std::string& path, const Member& member) {
  std::error_code absent;
  if (!std::filesystem::is_regular_file(path, absent)) return false;
  const MappedFile file(path);
  if (file.size() != member.bytes) return false;
  return crc32_z(crc32(0, nullptr, 0), reinterpret_cast<const Bytef*>(file.data()), static_cast<size_t>(file.size())) ==
         member.crc;
}

UnpackedFile unpack_file(const Archive& archive, const Member& member, const std::string& path,
                         const std::string& sha256) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  Digest digest("sha256");
  if (is_there(path, member)) {
    const MappedFile file(path);
    digest.update(file.data(), static_cast<size_t>(file.size()));
  } else {
    AtomicFile file(path);
    unpack_member(archive, member, [&](const char* data, size_t bytes) {
      file.write(data, bytes);
      digest.update(data, bytes);
    });
    if (sha256.empty() || digest.hexadecimal() == sha256) file.commit();
  }
  if (!sha256.empty() && digest.hexadecimal() != sha256) {
    throw DataError(fmt::format("{}: {}: its sha256 is {}, and {} is published", archive.path(), member.name,
                                digest.hexadecimal(), sha256));
  }
  return {path, member.bytes, sha256.empty() ? "crc32" : "sha256", sha256};
}

}  // namespace

UnpackedArchive unpack_zip(const std::string& path, const std::string& directory,
                           const std::map<std::string, std::string>& sha256) {
  const Archive archive(path);
  std::vector<Member> members = archive.members();
  UnpackedArchive unpacked;
  unpacked.left_out =
      static_cast<int64_t>(std::erase_if(members, [](const Member& member) { return is_of_macos(member.name); }));
  const std::string prefix = shared_directory(members);
  std::map<std::string, std::string> missing = sha256;
  int64_t needed = 0;
  for (Member& member : members) {
    missing.erase(member.name.substr(prefix.size()));
    needed += member.bytes;
  }
  if (!missing.empty()) throw DataError(path + ": the archive has no " + missing.begin()->first);
  std::filesystem::create_directories(directory);
  check_free_space((std::filesystem::path(directory) / "x").string(), needed, "the unpacked archive");
  for (const Member& member : members) {
    const std::string name = member.name.substr(prefix.size());
    const auto published = sha256.find(name);
    unpacked.files.push_back(unpack_file(archive, member, (std::filesystem::path(directory) / name).string(),
                                         published == sha256.end() ? "" : published->second));
  }
  return unpacked;
}

}  // namespace bert
