#include "app/system/machine/library_search.h"

#include <elf.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

namespace bert {
namespace {

using Path = std::filesystem::path;

constexpr const char* kInstallForAll =
    "install it where every user can read it, for example with app/setup.sh --prefix /opt/bert, and run "
    "/opt/bert/bin/bert";
constexpr int kMostLinks = 40;  // as many as Linux follows in one path (path_resolution(7))

/// The entries of an ELF file that decide where the loader looks for libraries.
struct DynamicSection {
  std::vector<std::string> needed;
  std::vector<Path> places;  // RUNPATH or RPATH
};

template <class T>
bool read_at(std::istream& file, uint64_t offset, T& value) {
  return file.seekg(static_cast<std::streamoff>(offset)) && file.read(reinterpret_cast<char*>(&value), sizeof value);
}

/// Empty if `path` is no readable ELF file of this machine's kind.
DynamicSection read_dynamic_section(const Path& path) {
  DynamicSection result;
  std::ifstream file(path, std::ios::binary);
  Elf64_Ehdr header{};
  if (!read_at(file, 0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return result;
  std::vector<Elf64_Phdr> segments(header.e_phnum);
  std::vector<Elf64_Dyn> entries;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!read_at(file, header.e_phoff + i * sizeof(Elf64_Phdr), segments[i])) return result;
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= segment.p_filesz; at += sizeof(Elf64_Dyn)) {
      if (!read_at(file, segment.p_offset + at, entries.emplace_back())) return result;
    }
  }
  uint64_t strings = 0;  // address of the string table, then its place in the file
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag == DT_STRTAB) strings = entry.d_un.d_ptr;
  }
  for (const Elf64_Phdr& segment : segments) {
    if (segment.p_type != PT_LOAD || strings < segment.p_vaddr || strings - segment.p_vaddr >= segment.p_filesz)
      continue;
    strings = strings - segment.p_vaddr + segment.p_offset;
    break;
  }
  for (const Elf64_Dyn& entry : entries) {
    if (entry.d_tag != DT_NEEDED && entry.d_tag != DT_RUNPATH && entry.d_tag != DT_RPATH) continue;
    std::string text;
    if (!file.seekg(static_cast<std::streamoff>(strings + entry.d_un.d_val)) || !std::getline(file, text, '\0'))
      return result;
    if (entry.d_tag == DT_NEEDED) {
      result.needed.push_back(text);
      continue;
    }
    std::istringstream list(text);
    for (std::string place; std::getline(list, place, ':');) {
      constexpr std::string_view kOrigin = "$ORIGIN";
      if (place.starts_with(kOrigin)) place.replace(0, kOrigin.size(), path.parent_path().string());
      result.places.emplace_back(place);
    }
  }
  return result;
}

/// The places where the loader looks for `missing`: those of the library that needs it, which is `library` or one that
/// `library` brings.
std::optional<std::pair<Path, std::vector<Path>>> find_needer(const Path& library, const std::string& missing) {
  std::deque<Path> queue = {library};
  std::set<std::string> seen;
  for (; !queue.empty(); queue.pop_front()) {
    const DynamicSection section = read_dynamic_section(queue.front());
    for (const std::string& name : section.needed) {
      if (name == missing) return {{queue.front(), section.places}};
      if (!seen.insert(name).second) continue;
      for (const Path& place : section.places) {
        if (access((place / name).c_str(), R_OK) != 0) continue;
        queue.push_back(place / name);
        break;
      }
    }
  }
  return std::nullopt;
}

std::string name_of(uid_t user) {
  const passwd* const entry = getpwuid(user);
  return entry != nullptr ? entry->pw_name : std::to_string(user);
}

/// `path` without links and "..".
std::string shown(const Path& path) {
  std::error_code error;
  const Path canonical = std::filesystem::weakly_canonical(path, error);
  return (error ? path : canonical).string();
}

struct Obstacle {
  std::string text;
  bool closed = false;  // it is there, and this user may not pass
};

/// The reason for which this user cannot read `path`, which is absolute; none if the user can.
std::optional<Obstacle> obstacle_on(const Path& path, int links = 0) {
  const auto closed = [](const char* verb, const Path& place) {
    struct stat status {};
    std::ostringstream text;
    text << "user " << name_of(geteuid()) << " may not " << verb << " " << shown(place);
    if (stat(place.c_str(), &status) == 0)
      text << " (mode " << std::oct << (status.st_mode & 07777U) << ", owner " << name_of(status.st_uid) << ")";
    return Obstacle{text.str(), /*closed=*/true};
  };
  Path place;
  for (auto part = path.begin(); part != path.end(); ++part) {
    place /= *part;
    std::error_code error;
    if (std::filesystem::is_symlink(place, error) && links < kMostLinks) {
      Path target = place.parent_path() / std::filesystem::read_symlink(place, error);
      for (++part; part != path.end(); ++part) target /= *part;
      return obstacle_on(target, links + 1);
    }
    if (access(place.c_str(), F_OK) != 0) {
      const int code = errno;
      return Obstacle{code == ENOENT ? "there is no " + shown(place) : shown(place) + ": " + std::strerror(code)};
    }
    if (std::filesystem::is_directory(place, error) && access(place.c_str(), X_OK) != 0) return closed("enter", place);
  }
  if (access(path.c_str(), R_OK) != 0) return closed("read", path);
  return std::nullopt;
}

}  // namespace

LoadProblem explain_load_failure(const Path& library, const std::string& dlerror) {
  if (const auto obstacle = obstacle_on(library))
    return {obstacle->text, obstacle->closed ? kInstallForAll : kInstallAgain};
  const std::string missing = dlerror.substr(0, dlerror.find(": cannot open shared object file"));
  const auto needer = find_needer(library, missing);
  std::optional<Obstacle> first;
  for (const Path& place : needer ? needer->second : std::vector<Path>()) {
    const auto obstacle = obstacle_on(place / missing);
    if (obstacle && (!first || (obstacle->closed && !first->closed))) first = obstacle;
  }
  if (!first) return {dlerror, kInstallAgain};
  return {needer->first.filename().string() + " needs " + missing + ", and " + first->text,
          first->closed ? kInstallForAll : kInstallAgain};
}

}  // namespace bert
