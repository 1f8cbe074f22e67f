// The log directory of a job, laid out as torchrun does, and the copying of log files to the console.
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

/// Destination of one rank's streams. Without a file and a pipe a stream goes to the launcher's own.
struct WorkerFiles {
  std::string stdout_file, stderr_file;
  int stdout_pipe = -1, stderr_pipe = -1;  // the launcher's ends pass whole lines to the console
  std::string error_file;                  // "" if there are no files
};

/// The log files of a job: `<log_dir>/<rdzv_id>_XXXX/attempt_<k>/<local_rank>/{stdout.log,stderr.log,error.json}`, and
/// with --duplicate-*-filters `attempt_<k>/filtered_{stdout,stderr}.log`, which may be empty. Without --log-dir the
/// files are in a temporary directory, which is removed at the end unless a rank has left something there. Under
/// --log-dir /dev/null there are no files, and neither where no temporary directory can be made and no option asks for
/// a file.
///
/// Files under --tee are followed. If several ranks share a console that is no terminal, their streams come through
/// pipes, so that lines of different ranks never mix. A console that takes no output does not block the launcher. It
/// blocks the ranks, as it would without a launcher. At the end the remaining output is dropped if the console takes
/// nothing for the patience (30 s, see set_patience).
class WorkerLogs {
 public:
  /// Makes the job's directory. Throws IoError.
  WorkerLogs(EventLoop& loop, const LaunchConfig& config);
  ~WorkerLogs();
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

  /// Makes the directory of an attempt. Returns the destinations of each rank's streams. Throws IoError.
  std::vector<WorkerFiles> start_attempt(const Assignment& assignment);
  /// All ranks have been started: closes this process' copies of the ranks' pipe ends.
  void started() { write_ends_.clear(); }
  /// The ranks have ended. Copies what they have written until now, also a last line without an end. Continues in the
  /// event loop until drained().
  void finish_attempt();
  /// True if nothing is left to be copied.
  [[nodiscard]] bool drained() const { return tails_.empty() && stdout_.waiting.empty() && stderr_.waiting.empty(); }
  void set_patience(double seconds) { patience_ = std::chrono::duration<double>(seconds); }

 private:
  struct Tail {
    std::string path, prefix;  // path "": a pipe
    StreamSet stream = kStdout;
    std::vector<std::string> filters;  // lines that contain one of these are also copied to `filtered`
    std::string filtered;
    Descriptor file;
    std::string pending;         // bytes read of a line without its end
    bool was_left = false;       // `pending` was not empty at the last tick
    bool in_line = false;        // the last output was a part of a line
    std::optional<size_t> left;  // bytes still to be read, after the rank has ended
  };
  /// stdout or stderr of this process, and lines that it has not taken yet.
  struct Console {
    int descriptor;
    std::string waiting;
  };
  /// Chooses the destination of a rank's stream, and follows the stream if needed.
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
  EventLoop::Clock::time_point taken_;  // time when a console last took something, or had nothing to take
};

}  // namespace bert
