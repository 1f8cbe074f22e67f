#include "app/launcher/ranks/worker_logs.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "app/system/console.h"
#include "app/system/environment.h"
#include "data/io/error.h"

namespace bert {
namespace {

constexpr size_t kLongestLine = 1 << 20;    // bytes held back while their line has no end
constexpr size_t kMostWaiting = 256 << 10;  // bytes that wait for a console before reading stops
constexpr double kFinish_seconds = 0.01;    // between two tries to write to a slow console, after the ranks have ended

std::string make_directory(const std::string& prefix) {
  std::string path = prefix + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    throw IoError(path + ": cannot be made: " + std::strerror(errno) +
                  "; TMPDIR or --log-dir names a directory that can be written to");
  }
  return path;
}

/// True if stdout and stderr of this process are one file, as after 2>&1.
bool one_console() {
  struct stat out {
  }, err{};
  return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
         out.st_ino == err.st_ino;
}

/// True if a write of up to PIPE_BUF bytes would not block.
bool takes_more(int descriptor) {
  pollfd ready{descriptor, POLLOUT, 0};
  return poll(&ready, 1, 0) > 0;
}

/// Makes the file before any line is in it, as torchrun does. Readers need not wait for the file.
void make_empty_file(const std::string& path) {
  if (!Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)))
    throw IoError(path + ": cannot be made: " + std::strerror(errno));
}

bool has_files(const std::filesystem::path& directory) {
  std::error_code error;
  const std::filesystem::recursive_directory_iterator files(directory, error);
  return std::any_of(begin(files), end(files), [](const auto& entry) { return entry.is_regular_file(); });
}

/// True if --redirects or --tee names a stream of a rank here.
bool streams_to_files(const LaunchConfig& config) {
  for (int64_t rank = 0; rank < config.nproc_per_node; ++rank) {
    if ((config.logs.redirects.of(rank) | config.logs.tee.of(rank)) != kNoStream) return true;
  }
  return false;
}

}  // namespace

WorkerLogs::WorkerLogs(EventLoop& loop, const LaunchConfig& config)
    : loop_(loop), config_(config), base_(config.logs.directory) {
  if (base_ == "/dev/null") return;
  if (base_.empty()) {
    try {
      base_ = make_directory(temporary_directory() + "/torchelastic_");
      temporary_ = true;
    } catch (const IoError& none) {
      if (streams_to_files(config)) throw;
      say(std::string("note: the errors of ranks are kept in no file: ") + none.what());
      return;
    }
  }
  std::error_code error;
  std::filesystem::create_directories(base_, error);
  if (error) throw IoError("--log-dir " + base_ + ": cannot be made: " + error.message());
  std::string id = config.rendezvous.id;
  std::ranges::replace(id, '/', '_');
  directory_ = make_directory(std::filesystem::absolute(base_).string() + "/" + id + "_");
}

WorkerLogs::~WorkerLogs() {
  finish_attempt();
  if (timer_) loop_.cancel(*timer_);
  for (const Tail& tail : tails_) {
    if (tail.path.empty()) loop_.unwatch(tail.file.get());
  }
  std::error_code ignored;
  if (temporary_ && !has_files(base_)) std::filesystem::remove_all(base_, ignored);
}

std::vector<WorkerFiles> WorkerLogs::start_attempt(const Assignment& assignment) {
  finish_attempt();
  std::vector<WorkerFiles> result(static_cast<size_t>(config_.nproc_per_node));
  const std::filesystem::path attempt =
      std::filesystem::path(directory_) / ("attempt_" + std::to_string(assignment.restart_count));
  std::error_code error;
  if (!directory_.empty()) {
    std::filesystem::remove_all(attempt, error);
    std::filesystem::create_directories(attempt, error);
    if (!config_.logs.stdout_filters.empty()) make_empty_file(attempt / "filtered_stdout.log");
    if (!config_.logs.stderr_filters.empty()) make_empty_file(attempt / "filtered_stderr.log");
  }
  for (int64_t rank = 0; rank < config_.nproc_per_node; ++rank) {
    WorkerFiles& of_rank = result[static_cast<size_t>(rank)];
    if (!directory_.empty()) {
      const std::filesystem::path own = attempt / std::to_string(rank);
      std::filesystem::create_directories(own, error);
      if (error) throw IoError(own.string() + ": cannot be made: " + error.message());
      of_rank.error_file = own / "error.json";
    }
    place(kStdout, rank, attempt, log_prefix(config_, assignment, rank), of_rank);
    place(kStderr, rank, attempt, log_prefix(config_, assignment, rank), of_rank);
  }
  if (timer_) loop_.cancel(*timer_);
  tick();
  return result;
}

void WorkerLogs::place(StreamSet stream, int64_t rank, const std::filesystem::path& attempt, const std::string& prefix,
                       WorkerFiles& files) {
  const bool is_stdout = stream == kStdout;
  std::string& path = is_stdout ? files.stdout_file : files.stderr_file;
  const std::string name = is_stdout ? "stdout.log" : "stderr.log";
  const bool has_files = !directory_.empty();  // without files all output goes to the console, whatever the options say
  const StreamSet teed = config_.logs.tee.of(rank), to_file = config_.logs.redirects.of(rank) | teed;
  const std::set<int64_t>& shown = config_.logs.ranks_on_console;
  const bool on_console = shown.empty() || shown.contains(rank);

  Tail tail;
  tail.stream = stream;
  if (has_files && (to_file & stream) != 0) {
    path = attempt / std::to_string(rank) / name;
    if ((teed & stream) == 0 || !on_console) return;
    tail.path = path;
    tail.prefix = prefix;
    tail.filters = is_stdout ? config_.logs.stdout_filters : config_.logs.stderr_filters;
    tail.filtered = attempt / ("filtered_" + name);
    tails_.push_back(std::move(tail));
  } else if (has_files && !on_console) {
    path = "/dev/null";
  } else if (config_.nproc_per_node > 1 && isatty(is_stdout ? STDOUT_FILENO : STDERR_FILENO) == 0) {
    if (!is_stdout && files.stdout_pipe >= 0 && one_console()) {  // keeps the order of the rank's lines on both streams
      files.stderr_pipe = files.stdout_pipe;
      return;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw IoError(std::string("pipe: ") + std::strerror(errno));
    fcntl(ends[0], F_SETFL, O_NONBLOCK);  // for the launcher's end only
    tail.file = Descriptor(ends[0]);
    write_ends_.emplace_back(ends[1]);
    (is_stdout ? files.stdout_pipe : files.stderr_pipe) = ends[1];
    Tail& follows = tails_.emplace_back(std::move(tail));
    loop_.watch(ends[0], POLLIN, [this, &follows](short) { follow(follows); });
  }
}

/// Reads more of the stream. Returns false if nothing was there.
bool WorkerLogs::read_some(Tail& tail) {
  if (!tail.file) tail.file = Descriptor(open(tail.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!tail.file) return false;  // the rank has not been started yet
  std::array<char, 16 << 10> buffer{};
  const ssize_t got = read(tail.file.get(), buffer.data(), std::min(buffer.size(), tail.left.value_or(buffer.size())));
  if (got <= 0) {
    if (tail.left) tail.left = 0;  // the file has become shorter
    return false;
  }
  tail.pending.append(buffer.data(), static_cast<size_t>(got));
  if (tail.left) *tail.left -= static_cast<size_t>(got);
  return true;
}

void WorkerLogs::take_lines(Tail& tail, bool to_end) {
  size_t done = 0;
  std::string filtered;
  while (done < tail.pending.size()) {
    size_t end = tail.pending.find('\n', done);
    if (end == std::string::npos) {
      if (!to_end && tail.pending.size() - done < kLongestLine) break;
      end = tail.pending.size() - 1;
    }
    const std::string prefix = tail.in_line ? "" : tail.prefix;
    const std::string line = prefix + tail.pending.substr(done, end + 1 - done);
    console_of(tail).waiting += line;
    const bool copied = std::ranges::any_of(
        tail.filters, [&](const std::string& needle) { return line.find(needle, prefix.size()) != std::string::npos; });
    if (copied) filtered += line;
    tail.in_line = tail.pending[end] != '\n';
    done = end + 1;
  }
  tail.pending.erase(0, done);
  if (done > 0) tail.was_left = false;
  if (!filtered.empty()) std::ofstream(tail.filtered, std::ios::app) << filtered;
}

/// Passes on the available output, as long as the console keeps up.
void WorkerLogs::follow(Tail& tail) {
  Console& console = console_of(tail);
  while (console.waiting.size() < kMostWaiting && read_some(tail)) take_lines(tail, false);
  flush(console);
  // tick() reads on when the console has caught up.
  if (tail.path.empty() && console.waiting.size() >= kMostWaiting) loop_.set_events(tail.file.get(), 0);
}

void WorkerLogs::tick() {
  timer_.reset();
  for (auto at = tails_.begin(); at != tails_.end();) {
    Tail& tail = *at;
    follow(tail);
    if (tail.left == size_t{0}) {  // everything has been read
      take_lines(tail, true);
      if (tail.path.empty()) loop_.unwatch(tail.file.get());
      at = tails_.erase(at);
      continue;
    }
    ++at;
    if (!tail.path.empty()) continue;
    // A line without an end is held back for a short time only: it may be a prompt or a progress bar.
    if (tail.was_left && !tail.pending.empty()) take_lines(tail, true);
    tail.was_left = !tail.pending.empty();
    const bool keeps_up = console_of(tail).waiting.size() < kMostWaiting;
    loop_.set_events(tail.file.get(), keeps_up && !tail.left ? POLLIN : 0);
  }
  for (Console* console : {&stdout_, &stderr_}) flush(*console);
  if (drained()) return;
  const bool finishing = std::ranges::all_of(tails_, [](const Tail& tail) { return tail.left.has_value(); });
  if (!finishing || stdout_.waiting.size() + stderr_.waiting.size() == 0) taken_ = EventLoop::Clock::now();
  if (EventLoop::Clock::now() - taken_ > patience_) {
    for (Tail& tail : tails_) tail.pending.clear(), tail.left = 0;
    for (Console* console : {&stdout_, &stderr_}) console->waiting.clear();
  }
  timer_ = loop_.after(finishing ? kFinish_seconds : config_.logs.tail_interval_seconds, [this] { tick(); });
}

void WorkerLogs::flush(Console& console) {
  size_t done = 0;
  while (done < console.waiting.size() && takes_more(console.descriptor)) {
    const size_t piece = std::min<size_t>(PIPE_BUF, console.waiting.size() - done);
    const ssize_t written = write(console.descriptor, console.waiting.data() + done, piece);
    if (written > 0) {
      done += static_cast<size_t>(written);
    } else if (written < 0 && errno == EAGAIN) {
      break;
    } else if (written < 0 && errno != EINTR) {
      done = console.waiting.size();  // the console's reader has gone, which is no error
    }
  }
  if (done > 0) taken_ = EventLoop::Clock::now();
  console.waiting.erase(0, done);
}

void WorkerLogs::finish_attempt() {
  write_ends_.clear();
  for (Tail& tail : tails_) {
    if (tail.left) continue;
    // Processes that the rank has started may still write, so only the output that exists now is read.
    int in_pipe = 0;
    struct stat state {};
    if (tail.path.empty()) {
      ioctl(tail.file.get(), FIONREAD, &in_pipe);
      loop_.set_events(tail.file.get(), 0);
      tail.left = static_cast<size_t>(in_pipe);
    } else {
      if (!tail.file) tail.file = Descriptor(open(tail.path.c_str(), O_RDONLY | O_CLOEXEC));
      const off_t at = lseek(tail.file.get(), 0, SEEK_CUR);
      const bool known = fstat(tail.file.get(), &state) == 0 && state.st_size > at;
      tail.left = known ? static_cast<size_t>(state.st_size - at) : 0;
    }
  }
  if (timer_) loop_.cancel(*timer_);
  tick();
}

}  // namespace bert
