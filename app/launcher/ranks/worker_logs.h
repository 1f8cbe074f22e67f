// A job's log directory, as torchrun lays it out, and the copying of log files to the console.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "app/launcher/ranks/worker_environment.h"
#include "app/launcher/settings/options.h"
#include "app/net/event_loop.h"
#include "data/io/descriptor.h"

namespace bert {

/// Where one rank's streams go. No file and no pipe: the launcher's own.
struct WorkerFiles {
  std::string stdout_file, stderr_file;
  int stdout_pipe = -1, stderr_pipe = -1;  // whole lines go to the console from there
  std::string error_file;                  // "" when there are no files
};

/// `<log_dir>/<rdzv_id>_XXXX/attempt_<k>/<local_rank>/{stdout.log,stderr.log,error.json}` and
/// `attempt_<k>/filtered_{stdout,stderr}.log`, which are there, if empty, where such filters are given. Without --log-dir all of it is in a temporary directory, which goes at
/// the end unless a rank has left something there; under --log-dir /dev/null there are no files.
/// Teed files are followed. Where several ranks share a console that is no terminal, their streams come through pipes,
/// so that one rank's line is never inside another's. A console that takes nothing does not block the launcher: it
/// blocks the ranks, as it would without one, and what is left at the end is dropped when nothing of it is taken for
/// the patience (30 s, until set_patience).
class WorkerLogs {
 public:
  /// Makes the job's directory. Throws IoError.
  WorkerLogs(EventLoop& loop, const LaunchConfig& config);
  ~WorkerLogs();
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  /// Makes the directory of an attempt and says where each rank's streams go. Throws IoError.
  std::vector<WorkerFiles> start_attempt(const Assignment& assignment);
  /// All ranks have been started: this process lets go of their ends of the pipes.
  void started() { write_ends_.clear(); }
  /// The ranks are gone: what they have written until now is all that is still copied, also a last line without its
  /// end. Goes on by itself until drained().
  void finish_attempt();
  /// Nothing is left to be copied.
  [[nodiscard]] bool drained() const { return tails_.empty() && stdout_.waiting.empty() && stderr_.waiting.empty(); }
  void set_patience(double seconds) { patience_ = std::chrono::duration<double>(seconds); }

 private:
  struct Tail {
    std::string path, prefix;  // no path: a pipe
    StreamSet stream = kStdout;
    std::vector<std::string> filters;  // lines with one of them are copied to `filtered` too
    std::string filtered;
    Descriptor file;
    std::string pending;         // read, without the end of its line
    bool was_left = false;       // `pending` was there at the last tick
    bool in_line = false;        // what was passed on last was a piece of a line
    std::optional<size_t> left;  // bytes to be read still, once the rank is gone
  };
  /// stdout or stderr of this process, with whole lines that it has not taken yet.
  struct Console {
    int descriptor;
    std::string waiting;
  };
  /// Decides where a stream of a rank goes, and follows it where that is needed.
  void place(StreamSet stream, int64_t rank, const std::filesystem::path& attempt, const std::string& prefix,
             WorkerFiles& files);
  static bool read_some(Tail& tail);
  void take_lines(Tail& tail, bool to_end);
  void follow(Tail& tail);
  void tick();
  void flush(Console& console);
  [[nodiscard]] Console& console_of(const Tail& tail) { return tail.stream == kStdout ? stdout_ : stderr_; }

  EventLoop& loop_;
  const LaunchConfig& config_;
  std::string base_, directory_;
  bool temporary_ = false;
  std::list<Tail> tails_;
  std::vector<Descriptor> write_ends_;
  Console stdout_{1, ""}, stderr_{2, ""};
  std::optional<EventLoop::TimerId> timer_;
  std::chrono::duration<double> patience_{30};
  EventLoop::Clock::time_point taken_;  // when a console last took something, or had nothing to take
};

}  // namespace bert
