#include "app/launcher/settings/job_token.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "app/net/socket.h"
#include "app/system/crypto.h"
#include "app/system/errors.h"
#include "data/io/error.h"
#include "data/io/files.h"
#include "data/io/text_parts.h"

namespace bert {
namespace {

constexpr size_t kTokenBytes = 32;

std::string from_hexadecimal(std::string_view digits, const std::string& where) {
  while (!digits.empty() && std::isspace(static_cast<unsigned char>(digits.back())) != 0) digits.remove_suffix(1);
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    const auto byte = number_of<uint8_t>(digits.substr(i, 2), 16);
    if (!byte) break;
    bytes += static_cast<char>(*byte);
  }
  // The message does not show the content: it may be a token with one wrong digit.
  if (digits.size() != 2 * kTokenBytes || bytes.size() != kTokenBytes)
    throw DataError(where + ": expected 64 hexadecimal digits; make them with `openssl rand -hex 32`");
  return bytes;
}

struct Opened {
  Descriptor file;
  struct stat state {};
};

/// Opens a file or directory of the given type. Checks of `state` are checks of the open descriptor, so the file cannot
/// be swapped. `links`: O_NOFOLLOW refuses a symbolic link, 0 follows it.
Opened open_existing(const std::string& path, mode_t type, int links) {
  Opened opened{Descriptor(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | links))};
  const int error = errno;
  if (!opened.file && error == ELOOP) throw RefusedError(path + " is a symbolic link, or leads in a circle of them");
  if (!opened.file && error == EACCES)
    throw RefusedError(path + ": " + std::strerror(EACCES) + "; you must be able to read it");
  if (!opened.file) throw InputMissing(path + ": " + std::strerror(error));
  if (fstat(opened.file.get(), &opened.state) != 0) throw IoError(path + ": " + std::strerror(errno));
  if ((opened.state.st_mode & S_IFMT) != type)
    throw RefusedError(path + " is not a " + (type == S_IFDIR ? "directory" : "regular file"));
  return opened;
}

/// True if the file belongs to the user and is closed to all others.
bool is_private(const struct stat& state) { return state.st_uid == geteuid() && (state.st_mode & 077) == 0; }

bool has_group(gid_t group) {
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  groups.resize(static_cast<size_t>(std::max(getgroups(static_cast<int>(groups.size()), groups.data()), 0)));
  return group == getegid() || std::ranges::find(groups, group) != groups.end();
}

/// True for a file that root gives to a group of the user to read, and to nobody else, as Kubernetes mounts a secret in
/// a pod with fsGroup.
bool is_given_by_root(const struct stat& state) {
  return state.st_uid == 0 && (state.st_mode & 037) == 0 && has_group(state.st_gid);
}

Descriptor open_private(const std::string& path, mode_t type) {
  Opened opened = open_existing(path, type, O_NOFOLLOW);
  if (is_private(opened.state)) return std::move(opened.file);
  throw RefusedError(path +
                     ": others can read or replace it, so it cannot hold a job's token; chmod go= it, and let it "
                     "be your own");
}

/// Opens the file of BERTRUN_TOKEN_FILE. Links are allowed, because Kubernetes mounts secrets as links.
Descriptor open_given(const std::string& path) {
  Opened opened = open_existing(path, S_IFREG, 0);
  if (is_private(opened.state) || is_given_by_root(opened.state)) return std::move(opened.file);
  throw RefusedError(path +
                     ": others can read or replace this file, so it cannot hold a job's token; chmod go= it, and "
                     "let it be your own, or root's and readable only for a group of yours (mode 0440)");
}

std::string token_in(const Descriptor& file, const std::string& path) {
  std::array<char, 4096> content{};
  const ssize_t got = pread(file.get(), content.data(), content.size(), 0);
  if (got < 0) throw IoError(path + ": " + std::strerror(errno));
  return from_hexadecimal({content.data(), static_cast<size_t>(got)}, path);
}

[[noreturn]] void throw_cannot_be_made(const std::string& path, int error) {
  throw IoError(path + ": cannot be made: " + std::strerror(error) +
                "; set XDG_RUNTIME_DIR to a directory of your own that can be written to, or give the token in " +
                kTokenVariable);
}

/// Note [A directory in /tmp]
///
/// A name in /tmp belongs to the user who makes it first, so a stranger can take each name that can be predicted. The
/// directory of the tokens therefore has a random name, and agents know it by its owner, which a stranger cannot forge.
/// Agents that start together may make several directories. All agents take the one with the smallest ticket, by
/// Lamport's bakery algorithm: an agent makes its directory first, and then gives it a ticket above all tickets that it
/// sees. An agent that knows of one ticket lists the directories again. A directory that is absent from this list was
/// made later, so its ticket is above the known one. A directory without a ticket may still get a small one, so the
/// agent waits for the ticket, and then removes the directory: a maker that was only slow starts over. No step depends
/// on a clock.
constexpr const char* kTicket = "/ticket";          // a symbolic link to its number, so it is made whole
constexpr std::chrono::milliseconds kPatience(20);  // with a directory without a ticket

/// A directory in /tmp that belongs to this user alone.
struct OwnDirectory {
  long ticket;  // 0 without one
  std::string path;
};

long ticket_of(const std::string& directory) {
  std::array<char, 24> digits{};
  const ssize_t got = readlink((directory + kTicket).c_str(), digits.data(), digits.size() - 1);
  return got > 0 ? std::max(std::strtol(digits.data(), nullptr, 10), 0L) : 0;
}

std::vector<OwnDirectory> own_directories(const std::string& prefix) {
  std::vector<OwnDirectory> found;
  std::error_code unreadable;
  for (std::filesystem::directory_iterator each("/tmp", unreadable), end; each != end; each.increment(unreadable)) {
    const std::string path = each->path();
    struct stat state {};
    if (!path.starts_with(prefix) || lstat(path.c_str(), &state) != 0 || !S_ISDIR(state.st_mode)) continue;
    if (is_private(state)) found.push_back({ticket_of(path), path});
  }
  return found;
}

long largest_ticket(const std::vector<OwnDirectory>& directories) {
  return directories.empty() ? 0 : std::ranges::max(directories, {}, &OwnDirectory::ticket).ticket;
}

/// Makes a directory with a ticket. Returns false if another agent has removed the directory before it had one.
bool make_own_directory(const std::string& prefix) {
  std::string name = prefix + "XXXXXX";
  if (mkdtemp(name.data()) != nullptr) {
    const std::string ticket = std::to_string(largest_ticket(own_directories(prefix)) + 1);
    if (symlink(ticket.c_str(), (name + kTicket).c_str()) == 0) return true;
    if (errno == ENOENT) return false;
  }
  throw_cannot_be_made(name, errno);
}

std::string directory_in_tmp() {
  const std::string prefix = "/tmp/bertrun-" + std::to_string(geteuid()) + ".";
  while (largest_ticket(own_directories(prefix)) == 0 && !make_own_directory(prefix)) {
  }
  std::vector<OwnDirectory> directories = own_directories(prefix);
  const OwnDirectory* first = nullptr;
  for (OwnDirectory& each : directories) {
    if (each.ticket == 0) {
      std::this_thread::sleep_for(kPatience);
      rmdir(each.path.c_str());  // fails if the directory has a ticket by now
      each.ticket = ticket_of(each.path);
    }
    const bool smaller = first == nullptr || std::tie(each.ticket, each.path) < std::tie(first->ticket, first->path);
    if (each.ticket != 0 && smaller) first = &each;
  }
  if (first != nullptr) return first->path;
  throw IoError(
      "/tmp: cannot be listed, so agents do not find their shared token; set XDG_RUNTIME_DIR to a directory " +
      std::string("of your own, or give the token in ") + kTokenVariable);
}

/// The directory for tokens of jobs on loopback. A stranger can neither read it nor keep the user from having it.
std::string runtime_directory() {
  const char* given = std::getenv("XDG_RUNTIME_DIR");
  struct stat state {};
  // After su, the variable names the directory of another user.
  const bool own = given != nullptr && stat(given, &state) == 0 && S_ISDIR(state.st_mode) &&
                   state.st_uid == geteuid() && (state.st_mode & 022) == 0;
  if (!own) return directory_in_tmp();
  std::string base = std::string(given) + "/bertrun";
  if (mkdir(base.c_str(), 0700) != 0 && errno != EEXIST) throw_cannot_be_made(base, errno);
  open_private(base, S_IFDIR);
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
  if (!file) throw_cannot_be_made(temporary, errno);
  const std::string digits = to_hexadecimal(random_bytes(kTokenBytes));
  const bool written = flock(file.get(), LOCK_SH) == 0 &&
                       pwrite(file.get(), digits.data(), digits.size(), 0) == static_cast<ssize_t>(digits.size());
  const bool placed = written && link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(temporary.c_str());
  if (placed) return file;
  if (error != EEXIST) throw_cannot_be_made(path, error);
  return Descriptor();
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
      Descriptor file = open_private(path, S_IFREG);
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
    bytes_ = token_in(open_given(path), path);
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
