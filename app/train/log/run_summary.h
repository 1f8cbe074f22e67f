// summary.json: the figures of a run's newest evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace bert {

class RunSummary {
 public:
  RunSummary(std::string run_directory, int64_t max_steps, std::string config_sha256)
      : path_(std::move(run_directory) + "/summary.json"), max_steps_(max_steps), sha256_(std::move(config_sha256)) {}

  /// Figures of the last evaluation and of step 0, by their names in summary.json. Checkpoints keep them.
  [[nodiscard]] const std::map<std::string, double>& figures() const { return figures_; }
  void restore(std::map<std::string, double> figures) { figures_ = std::move(figures); }
  /// Replaces the figures of these names.
  void take(const std::map<std::string, double>& figures);
  /// The rate of the last interval, which checkpoints do not keep.
  void set_rate(double sequences_per_second) { sequences_per_second_ = sequences_per_second; }

  /// Writes the file for a run at step `applied`. Throws IoError.
  void write(int64_t applied) const;
  /// Writes the file if it is absent or belongs to another step: an earlier process may have been killed.
  void mend(int64_t applied) const;

 private:
  const std::string path_;
  const int64_t max_steps_;
  const std::string sha256_;
  std::map<std::string, double> figures_;
  std::optional<double> sequences_per_second_;
};

}  // namespace bert
