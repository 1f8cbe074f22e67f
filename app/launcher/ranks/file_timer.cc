#include "app/launcher/ranks/file_timer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstring>

#include "app/parse/bounded_json.h"
#include "app/system/console.h"
#include "app/system/crypto.h"
#include "app/system/environment.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr int kLastSignal = 31;          // SIGSYS
constexpr size_t kMostTimers = 100'000;  // a rank with more never releases any
// Longest time between two checks, in seconds: the clock of expiration times may be set meanwhile.
constexpr double kLongestWait = 3600;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

FileTimer::FileTimer(EventLoop& loop, const std::string& path, Expired expired)
    : loop_(loop),
      path_(path.empty() ? temporary_directory() + "/watchdog_timer_" + random_uuid() : path),
      expired_(std::move(expired)) {
  struct stat state {};
  if (lstat(path_.c_str(), &state) == 0 && S_ISFIFO(state.st_mode)) unlink(path_.c_str());
  if (mkfifo(path_.c_str(), 0600) != 0) {
    throw IoError(path_ + ": cannot be made a pipe: " + std::strerror(errno) +
                  "; TMPDIR names a directory that can be written to");
  }
  // The pipe is open for writing too, so that it never ends.
  pipe_ = Descriptor(open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!pipe_) throw IoError(path_ + ": " + std::strerror(errno));
  loop_.watch(pipe_.get(), POLLIN, [this](short) { read_some(); });
}

FileTimer::~FileTimer() {
  clear();
  loop_.unwatch(pipe_.get());
  unlink(path_.c_str());
}

void FileTimer::clear() {
  timers_.clear();
  if (next_) loop_.cancel(*next_);
  next_.reset();
}

void FileTimer::read_some() {
  std::array<char, 16 << 10> buffer{};
  const ssize_t got = read(pipe_.get(), buffer.data(), buffer.size());
  if (got <= 0) return;
  pending_.append(buffer.data(), static_cast<size_t>(got));
  size_t done = 0;
  for (size_t end = 0; (end = pending_.find('\n', done)) != std::string::npos; done = end + 1)
    take(pending_.substr(done, end - done));
  pending_.erase(0, done);
  if (pending_.size() > PIPE_BUF) pending_.clear();  // longer than the largest write that a client makes
  look_at_next();
}

void FileTimer::take(const std::string& line) {
  try {
    const nlohmann::json request = parse_bounded_json(line, path_);
    const int64_t pid = integer_member(request, "pid", path_), signal = integer_member(request, "signal", path_);
    const std::string& scope = string_member(request, "scope_id", path_);
    const double expiration = number_member(request, "expiration_time", path_);
    if (pid < 1 || pid > INT_MAX || signal > kLastSignal) throw DataError(path_ + ": no such process or signal");
    const std::pair<pid_t, std::string> key(static_cast<pid_t>(pid), scope);
    if (expiration < 0) {
      timers_.erase(key);
    } else if (timers_.size() < kMostTimers) {
      timers_[key] = {expiration, static_cast<int>(std::max<int64_t>(signal, 0))};
    }
  } catch (const DataError& error) {
    if (!complained_) say(std::string("note: a line of a timer is ignored: ") + error.what());
    complained_ = true;
  }
}

void FileTimer::look_at_next() {
  if (next_) loop_.cancel(*next_);
  next_.reset();
  if (timers_.empty()) return;
  const auto first = std::ranges::min_element(
      timers_, [](const auto& a, const auto& b) { return a.second.expiration < b.second.expiration; });
  const double wait = first->second.expiration - seconds_since_1970();
  next_ = loop_.after(std::clamp(wait, 0.0, kLongestWait), [this] {
    next_.reset();
    look();
  });
}

void FileTimer::look() {
  const double now = seconds_since_1970();
  for (auto at = timers_.begin(); at != timers_.end();) {
    if (at->second.expiration > now) {
      ++at;
      continue;
    }
    const auto [key, timer] = *at;
    at = timers_.erase(at);
    expired_(key.first, key.second, timer.signal);
  }
  look_at_next();
}

}  // namespace bert
