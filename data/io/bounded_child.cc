#include "data/io/bounded_child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "data/io/error.h"

namespace bert {
namespace {

// A number has 8 bytes. A text has its length before it.
constexpr int64_t kError = 1;  // a message: the text of an exception
constexpr int64_t kMostTextBytes = int64_t{16} << 20;

// Sanitizers reserve far more address space than any limit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr size_t kPipeBytes = size_t{1} << 20;  // the most that Linux allows every user
constexpr int kPipe = 3;                        // the child's descriptor of the pipe
enum ChildCode : int { kEnded = 0, kFailed = 1, kNoMemory = 2, kNobodyReads = 3 };

/// The address space of this process in bytes.
rlim_t address_space() {
  rlim_t pages = 0;
  const Descriptor file(open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  std::array<char, 32> text{};
  if (file && read(file.get(), text.data(), text.size() - 1) > 0)
    for (const char* c = text.data(); *c >= '0' && *c <= '9'; ++c) pages = pages * 10 + static_cast<rlim_t>(*c - '0');
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// Lowers a limit, and leaves it where it is lower already.
void set_limit(int resource, rlim_t soft, rlim_t hard) {
  rlimit limit{};
  getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  limit.rlim_max = std::min(limit.rlim_max, hard);
  limit.rlim_cur = std::min({limit.rlim_cur, limit.rlim_max, soft});
  setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

void write_pipe(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = write(kPipe, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(kNobodyReads);
    at += written;
    bytes -= static_cast<size_t>(written);
  }
}

/// The life of the child.
[[noreturn]] void run_child(int pipe, pid_t parent, const ChildLimits& limits,
                            const std::function<void(const BoundedChild::Write&)>& work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNobodyReads);
  // The handlers of this process are not the child's: a crash or Ctrl+C ends it at once.
  for (const int each : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT, SIGXCPU}) signal(each, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  if (pipe != kPipe && dup2(pipe, kPipe) != kPipe) _exit(kFailed);
  close_range(kPipe + 1, ~0U, 0);
  const auto seconds = static_cast<rlim_t>(limits.processor_seconds);
  set_limit(RLIMIT_CPU, seconds, seconds + 1);
  set_limit(RLIMIT_CORE, 0, 0);
  if (!kSanitized) {
    const rlim_t memory = address_space() + static_cast<rlim_t>(limits.memory_bytes);
    set_limit(RLIMIT_AS, memory, memory);
  }
  try {
    work(write_pipe);
  } catch (const std::bad_alloc&) {
    _exit(kNoMemory);
  } catch (...) {
    _exit(kFailed);
  }
  _exit(kEnded);
}

}  // namespace

BoundedChild::BoundedChild(std::string what, const ChildLimits& limits, const std::function<void(const Write&)>& work)
    : what_(std::move(what)), limits_(limits), buffer_(kPipeBytes) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    throw IoError(fmt::format("{}: cannot make a pipe: {}", what_, std::strerror(errno)));
  pipe_ = Descriptor(ends[0]);
  const Descriptor output(ends[1]);
  fcntl(output.get(), F_SETPIPE_SZ, static_cast<int>(kPipeBytes));  // fewer changes between the processes; may fail
  const pid_t parent = getpid();
  child_ = fork();
  if (child_ < 0) throw ResourceError(fmt::format("{}: cannot make a process: {}", what_, std::strerror(errno)));
  if (child_ == 0) run_child(output.get(), parent, limits_, work);
}

BoundedChild::~BoundedChild() {
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool BoundedChild::fill() {
  while (true) {
    pollfd waiting{pipe_.get(), POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(limits_.silent_ms));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      throw DataError(
          fmt::format("{}: the process that parses the file was stopped after {} ms without a result: the "
                      "file is damaged, or the disk does not answer",
                      what_, limits_.silent_ms));
    }
    const ssize_t got = ready < 0 ? -1 : ::read(pipe_.get(), buffer_.data(), buffer_.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("{}: cannot read from a pipe: {}", what_, std::strerror(errno)));
    begin_ = 0;
    end_ = static_cast<size_t>(got);
    return got > 0;
  }
}

bool BoundedChild::read(void* data, size_t bytes) {
  char* const to = static_cast<char*>(data);
  for (size_t done = 0; done < bytes;) {
    if (begin_ == end_ && !fill()) {
      reap();
      if (done == 0) return false;
      throw DataError(what_ + ": the process that parses the file ended amid an answer: the file is damaged");
    }
    const size_t count = std::min(bytes - done, end_ - begin_);
    std::memcpy(to + done, buffer_.data() + begin_, count);
    begin_ += count;
    done += count;
  }
  return true;
}

void BoundedChild::reap() {
  if (child_ < 0) return;
  int status = 0;
  while (waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == kEnded) return;
  std::string why = "failed";
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNoMemory)
    why = fmt::format("wanted more than {} MB of memory", limits_.memory_bytes >> 20);
  if (WIFSIGNALED(status)) {
    why = WTERMSIG(status) == SIGXCPU
              ? fmt::format("was stopped after {} s of processor time", limits_.processor_seconds)
              : fmt::format("crashed ({})", strsignal(WTERMSIG(status)));
  }
  throw DataError(
      fmt::format("{}: the process that parses the file {}: the file is damaged. Copy or make it again.", what_, why));
}

void MessageSender::append(const void* data, size_t bytes) {
  constexpr size_t kMostWritten = size_t{64} << 10;  // one write
  buffer_.append(static_cast<const char*>(data), bytes);
  if (buffer_.size() >= kMostWritten) flush();
}

void MessageSender::flush() {
  write_(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void MessageSender::number(int64_t value) { append(&value, sizeof value); }

void MessageSender::text(const std::string& value) {
  number(static_cast<int64_t>(value.size()));
  append(value.data(), value.size());
}

MessageReader::MessageReader(std::string path, const ChildLimits& limits,
                             const std::function<void(MessageSender&)>& work)
    : path_(std::move(path)), child_(path_, limits, [&](const BoundedChild::Write& write) {
        MessageSender sender(write);
        try {
          work(sender);
        } catch (const std::bad_alloc&) {
          throw;
        } catch (const std::exception& error) {
          sender.number(kError);
          sender.text(error.what());
        }
        sender.flush();
      }) {}

int64_t MessageReader::message() {
  const int64_t kind = number();
  if (kind == kError) throw bad(text());
  return kind;
}

void MessageReader::take(void* data, size_t bytes) {
  if (!child_.read(data, bytes)) throw bad("the process that parses the file ended before the last answer");
}

int64_t MessageReader::number() {
  int64_t value = 0;
  take(&value, sizeof value);
  return value;
}

std::string MessageReader::text() {
  const int64_t bytes = number();
  if (bytes < 0 || bytes > kMostTextBytes) throw bad(fmt::format("a text of {} bytes", bytes));
  std::string value(static_cast<size_t>(bytes), '\0');
  take(value.data(), value.size());
  return value;
}

}  // namespace bert
