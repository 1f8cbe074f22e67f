// A run that is watched through its files.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/report/view/file_tail.h"
#include "app/report/view/run_files.h"

namespace bert {

/// The facts of this machine that a watch asks for.
struct WatchedMachine {
  std::string host;
  /// True if the process `pid` lives and had begun by `begun` (seconds since 1970): another process may have its number.
  static bool lives(int64_t pid, double begun);
  /// Resident memory of a process in bytes; 0: unknown.
  static int64_t memory_of(int64_t pid);
};

/// The state of a run, from config.json, metrics.jsonl and attempts.jsonl. It writes nothing and takes no lock.
class RunWatch {
 public:
  /// `run_directory` is one (check_run_directory() in app/report/view/run_files.h). `host` is the name of this machine.
  RunWatch(std::string run_directory, std::string host);

  /// Reads the lines that were appended. Returns them as plain lines for people, by time. Lines that are damaged are
  /// counted and passed over. Throws IoError.
  std::vector<std::string> update();

  /// The exit code of the run's last process, if that has recorded its end; kInternal with `why` set if the process
  /// is gone from this machine without having done so. nullopt: the run goes on, or has not begun, or goes on
  /// elsewhere as far as the files say. Without attempts.jsonl: 0 if summary.json has the last step.
  [[nodiscard]] std::optional<int> exit_code(std::string& why) const;

  /// The screen: lines of at most `columns` columns, without line ends. `now` is in seconds since 1970.
  [[nodiscard]] std::vector<std::string> screen(size_t columns, double now) const;

 private:
  /// A line for people, and the time of its event.
  struct TimedLine {
    double time;
    std::string text;
  };
  void read_config();
  [[nodiscard]] std::string add_metrics(const nlohmann::json& line);
  [[nodiscard]] std::string add_attempt(const nlohmann::json& line);
  void forget_metrics();
  [[nodiscard]] int64_t process_here() const;
  [[nodiscard]] std::string title() const;
  [[nodiscard]] std::string state(double now) const;
  [[nodiscard]] std::optional<double> seconds_left() const;
  [[nodiscard]] std::string progress(size_t columns) const;
  [[nodiscard]] std::string training_line() const;

  static constexpr double kNever = -std::numeric_limits<double>::infinity();
  std::string directory_, host_;
  FileTail metrics_, attempts_;
  int64_t damaged_ = 0;  // lines that are no JSON objects
  nlohmann::json config_, begin_, end_, training_,
      evaluation_;  // null: there is none; of the last process, the last lines
  std::vector<double> losses_;
  struct Moment {
    int64_t step;
    LineTime at;
  };
  std::vector<Moment> recent_;  // of the last lines of one process
  double skipped_ = 0;
  // The largest times of the lines that update() has returned, by file. A file that was replaced has them again.
  double newest_metrics_ = kNever, newest_attempts_ = kNever;
};

}  // namespace bert
