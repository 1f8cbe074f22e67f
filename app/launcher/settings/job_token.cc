#include "app/launcher/settings/job_token.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "app/net/socket.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kTokenBytes = 32;

std::string from_hexadecimal(std::string_view digits, const std::string& where) {
  while (!digits.empty() && std::isspace(static_cast<unsigned char>(digits.back())) != 0) digits.remove_suffix(1);
  const auto value = [](char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
  };
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    const int high = value(digits[i]), low = value(digits[i + 1]);
    if (high < 0 || low < 0) break;
    bytes += static_cast<char>(high * 16 + low);
  }
  // The message does not show the content: it may be a token with one wrong digit.
  if (digits.size() != 2 * kTokenBytes || bytes.size() != kTokenBytes)
    throw DataError(where + ": expected 64 hexadecimal digits; make them with `openssl rand -hex 32`");
  return bytes;
}

/// Opens a file or directory that must belong to the user and be closed to all others. The checks are on the open
/// descriptor, so the file cannot be swapped. `links`: O_NOFOLLOW refuses a symbolic link, 0 follows it.
Descriptor open_private(const std::string& path, mode_t type, int links) {
  Descriptor file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | links));
  if (!file && errno == ELOOP) throw RefusedError(path + " is a symbolic link, or leads in a circle of them");
  if (!file && errno == EACCES) throw RefusedError(path + ": " + std::strerror(EACCES) + "; it must be your own");
  if (!file) throw InputMissing(path + ": " + std::strerror(errno));
  struct stat state {};
  if (fstat(file.get(), &state) != 0) throw IoError(path + ": " + std::strerror(errno));
  if ((state.st_mode & S_IFMT) != type)
    throw RefusedError(path + " is not a " + (type == S_IFDIR ? "directory" : "regular file"));
  if (state.st_uid != geteuid() || (state.st_mode & 077) != 0) {
    throw RefusedError(path +
                       ": others can read or replace this file, so it cannot hold a job's token; chmod go= it, "
                       "and let it be your own");
  }
  return file;
}

std::string token_in(const Descriptor& file, const std::string& path) {
  std::array<char, 4096> content{};
  const ssize_t got = pread(file.get(), content.data(), content.size(), 0);
  if (got < 0) throw IoError(path + ": " + std::strerror(errno));
  return from_hexadecimal({content.data(), static_cast<size_t>(got)}, path);
}

std::string runtime_directory() {
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  std::error_code ignored;
  const bool usable = given != nullptr && *given != '\0' && std::filesystem::is_directory(given, ignored);
  std::string base = usable ? std::string(given) + "/bertrun" : "/tmp/bertrun-" + std::to_string(geteuid());
  if (mkdir(base.c_str(), 0700) != 0 && errno != EEXIST) {
    throw IoError(base + ": cannot be made: " + std::strerror(errno) +
                  "; set XDG_RUNTIME_DIR to a directory of your "
                  "own, or give the token in " +
                  kTokenFileVariable);
  }
  open_private(base, S_IFDIR, O_NOFOLLOW);
  return base;
}

std::string runtime_file(const RendezvousConfig& config) {
  return runtime_directory() + "/" + sha256(std::to_string(config.port) + "/" + config.id).substr(0, 32) + ".token";
}

/// Makes a file with a new token. The file is locked before it gets its name. Returns none if a file of that name
/// exists.
Descriptor make_shared_file(const std::string& path) {
  const std::string temporary = path + "." + to_hexadecimal(random_bytes(8));
  Descriptor file(open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) throw IoError(temporary + ": cannot be made: " + std::strerror(errno));
  const std::string digits = to_hexadecimal(random_bytes(kTokenBytes));
  const bool written = flock(file.get(), LOCK_SH) == 0 &&
                       pwrite(file.get(), digits.data(), digits.size(), 0) == static_cast<ssize_t>(digits.size());
  const bool placed = written && link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(temporary.c_str());
  if (placed) return file;
  if (error != EEXIST) throw IoError(path + ": cannot be made: " + std::strerror(error));
  return Descriptor();
}

/// True if the path still leads to the opened file.
bool is_at(const Descriptor& file, const std::string& path) {
  struct stat opened {
  }, there{};
  return fstat(file.get(), &opened) == 0 && lstat(path.c_str(), &there) == 0 && opened.st_ino == there.st_ino &&
         opened.st_dev == there.st_dev;
}

/// Removes a file that no other agent has locked. The exclusive lock keeps other agents from relying on the file.
bool remove_if_unused(const Descriptor& file, const std::string& path) {
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  if (is_at(file, path)) unlink(path.c_str());
  return true;
}

/// Opens the file that the agents of this job share, and locks it. The first agent makes it.
Descriptor shared_file(const std::string& path) {
  for (;;) {
    if (Descriptor made = make_shared_file(path)) return made;
    try {
      Descriptor file = open_private(path, S_IFREG, O_NOFOLLOW);
      if (remove_if_unused(file, path)) continue;  // left by a job that was killed
      if (flock(file.get(), LOCK_SH) == 0 && is_at(file, path)) return file;
    } catch (const InputMissing&) {  // the last agent has just removed the file
    }
  }
}

/// Overwrites the value before it removes the variable: /proc/<pid>/environ shows the bytes of the start.
void forget(const char* variable) {
  if (char* value = std::getenv(variable)) std::memset(value, 0, std::strlen(value));
  unsetenv(variable);
}

}  // namespace

void forget_token() {
  forget(kTokenVariable);
  forget(kTokenFileVariable);
}

JobToken::JobToken(const RendezvousConfig& config) {
  const char* value = std::getenv(kTokenVariable);
  const char* file = std::getenv(kTokenFileVariable);
  const std::string given = value != nullptr ? value : "", path = file != nullptr ? file : "";
  forget_token();
  if (!given.empty()) {
    bytes_ = from_hexadecimal(given, kTokenVariable);
  } else if (!path.empty()) {
    // Links are allowed here: Kubernetes mounts secrets as links.
    bytes_ = token_in(open_private(path, S_IFREG, 0), path);
  } else if (is_loopback(config.host)) {
    path_ = runtime_file(config);
    file_ = shared_file(path_);
    bytes_ = token_in(file_, path_);
  }
  if (!bytes_.empty()) return;
  throw RefusedError(
      "the machines of a job must share a secret before they meet on a network: make one with\n"
      "  (umask 077; openssl rand -hex 32 > bertrun.token)\n"
      "copy the file to every machine (or keep it in a home directory that they share), and start every bertrun with "
      "BERTRUN_TOKEN_FILE=bertrun.token, or with its content in BERTRUN_TOKEN");
}

JobToken::~JobToken() {
  if (file_) remove_if_unused(file_, path_);
}

}  // namespace bert
