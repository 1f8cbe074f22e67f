// The curves of a run: the lines of metrics.jsonl as columns, over steps, tokens and hours.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "app/report/view/run_files.h"

namespace bert {

/// Columns of one length. NaN stands for a value that a line does not have.
struct Columns {
  std::vector<int64_t> step;
  std::vector<double> tokens, hours;  // since the run began
  std::map<std::string, std::vector<double>> values;

  [[nodiscard]] size_t size() const { return step.size(); }
  /// The last value of a column that is not NaN; NaN if there is none.
  [[nodiscard]] double last(const std::string& name) const;
};

/// A place at which a later process continued the run.
struct Restart {
  int64_t step = 0;  // of its first line
  double tokens = 0, hours = 0;
};

struct RunSeries {
  Columns training, evaluations;
  std::vector<Restart> restarts;
};

// Note [Derived columns]
// metrics.jsonl has the rates of an interval, not its duration. A step has global_batch_size sequences, or the
// sequences_per_step of the line. So an interval took so many times steps / sequences_per_second seconds, and had so many
// times tokens_per_second tokens.
// `waiting` is data_wait_seconds as a share of these seconds. `skipped_steps` is summed over the lines. The hours of a run
// are those of its processes, from the begin of each to its last line that was kept; is_of_later_process() tells the
// processes apart.

/// The curves of the lines of metrics.jsonl. Training has a column for each number of a line, in it those of
/// tokens_per_rank as tokens_least and tokens_most, and `source NAME` for the mlm_loss of each source; evaluations have
/// one for each figure. See Note [Derived columns]. Throws DataError with file and line for a line without a step.
RunSeries series_of(const std::vector<JsonLine>& metrics, int64_t global_batch_size);

/// At most `most` of `count` places, at even distances, with the first and the last.
std::vector<size_t> evenly(size_t count, size_t most);

/// The places of `columns` to draw: all, or of each of most / 2 parts of equal length those with the smallest and the
/// largest `by`, of which NaN is neither if there is another; and the last one.
std::vector<size_t> places_to_draw(const Columns& columns, const std::string& by, size_t most);

}  // namespace bert
