#include "data/download/zip_archive.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "data/download/digest.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/io_errors.h"

namespace bert {
namespace {

struct Member {
  std::string name;
  zip_uint64_t index = 0;
  uint32_t crc = 0;
  int64_t bytes = 0;
};

/// libzip's archive, open for reading.
class Archive {
 public:
  explicit Archive(const std::string& path) : path_(path) {
    int code = 0;
    zip_.reset(zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, &code));
    if (zip_ == nullptr) {
      zip_error_t error;
      zip_error_init_with_code(&error, code);
      const std::string reason = zip_error_strerror(&error);
      zip_error_fini(&error);
      throw DataError(path + ": this is not a zip archive, or it is damaged (" + reason + ")");
    }
    const zip_int64_t count = zip_get_num_entries(zip_.get(), 0);
    if (count == 0) throw DataError(path + ": this is not a zip archive, or it is empty");
    for (zip_int64_t i = 0; i < count; ++i) add_member(static_cast<zip_uint64_t>(i));
  }

  [[nodiscard]] const std::vector<Member>& members() const { return members_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  /// Calls take(piece) for the unpacked bytes of a member. Throws DataError if their number or CRC-32 is another.
  void unpack(const Member& member, const std::function<void(const char* data, size_t bytes)>& take) const {
    const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(zip_fopen_index(zip_.get(), member.index, 0),
                                                                 zip_fclose);
    if (file == nullptr) damaged(member.name + ": " + zip_strerror(zip_.get()));
    std::vector<char> piece(size_t{1} << 18);
    int64_t left = member.bytes;
    for (zip_int64_t got = 1; got > 0; left -= got) {
      got = zip_fread(file.get(), piece.data(), piece.size());
      if (got < 0) damaged(member.name + ": its bytes are damaged: " + zip_file_strerror(file.get()));
      if (got > left) damaged(member.name + ": it has more bytes than the archive says");
      take(piece.data(), static_cast<size_t>(got));
    }
    if (left != 0) damaged(member.name + ": it has fewer bytes than the archive says");
  }

 private:
  [[noreturn]] void damaged(const std::string& message) const { throw DataError(path_ + ": " + message); }

  void add_member(zip_uint64_t index) {
    zip_stat_t state;
    if (zip_stat_index(zip_.get(), index, ZIP_FL_ENC_RAW, &state) != 0) damaged(zip_strerror(zip_.get()));
    const std::string name = state.name;
    if (name.ends_with('/')) return;  // a directory
    bool plain = !name.empty() && name.find('\\') == std::string::npos && name.find("//") == std::string::npos;
    for (const auto& part : std::filesystem::path(name))
      plain = plain && part != ".." && part != "." && part != "/" && !part.empty();
    if (!plain) damaged("the name of a file leads out of its directory: " + name);
    zip_uint8_t system = 0;
    zip_uint32_t attributes = 0;
    zip_file_get_external_attributes(zip_.get(), index, 0, &system, &attributes);
    if (S_ISLNK(attributes >> 16)) damaged(name + " is a link");
    if (state.encryption_method != ZIP_EM_NONE) damaged(name + " is encrypted");
    if (zip_compression_method_supported(state.comp_method, /*compress=*/0) == 0)
      damaged(fmt::format("{} is packed with method {}, which cannot be read", name, state.comp_method));
    members_.push_back({name, index, state.crc, static_cast<int64_t>(state.size)});
  }

  struct Closing {
    void operator()(zip_t* zip) const { zip_discard(zip); }
  };
  std::string path_;
  std::unique_ptr<zip_t, Closing> zip_;
  std::vector<Member> members_;
};

/// The directory, with its slash, that all names begin with; "" if there is none.
std::string shared_directory(const std::vector<Member>& members) {
  if (members.empty()) return "";
  const std::string first = members.front().name.substr(0, members.front().name.find('/') + 1);
  const bool shared =
      std::ranges::all_of(members, [&](const Member& member) { return member.name.starts_with(first); });
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
    archive.unpack(member, [&](const char* data, size_t bytes) {
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
