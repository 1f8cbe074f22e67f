// The content of a report: the figures of several runs as one JSON value.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/report/view/run_files.h"
#include "app/report/view/run_series.h"

namespace bert {

/// A checkpoint in RUN/checkpoints.
struct ReportedCheckpoint {
  int64_t step = 0, bytes = 0, files = 0;
  std::string problem;  // the reason why its manifest cannot be read; empty: it can
};

/// The lengths of the training examples of a run.
struct ReportedLengths {
  struct Bin {
    int64_t shortest = 0, longest = 0, examples = 0;
  };
  std::string absent;  // the reason why the members below are empty; empty: they are not
  int64_t examples = 0, counted = 0, max_seq_length = 0;
  double mean_length = 0;  // of the counted examples, in tokens
  std::vector<Bin> bins;   // of the counted examples
};

/// All that a report says of one run.
struct ReportedRun {
  RunFiles files;
  RunSeries series;
  std::vector<ReportedCheckpoint> checkpoints;
  ReportedLengths lengths;
};

/// A key in which the configurations of runs differ: its JSON pointer and, for each run, its value as JSON; "" where a
/// configuration lacks the key. Lists are compared as one value.
struct SettingDifference {
  std::string key;
  std::vector<std::string> values;
};

/// The differences of the configurations, without run_directory, by key. None for one run.
std::vector<SettingDifference> differences_of(const std::vector<ReportedRun>& runs);

/// The state of a run in words: "finished", "running, or killed: its last process has not recorded its end".
std::string state_of(const RunFiles& files);

/// The figures of an evaluation for people, the most telling first, without the sizes of its data.
std::vector<std::string> evaluation_figures(const Columns& evaluations);

/// The runs' names, made distinct: where two are equal, the directories as they were named.
std::vector<std::string> distinct_names(const std::vector<ReportedRun>& runs);

/// The JSON from which the page is drawn. Long curves are thinned to lines of metrics.jsonl that keep their extremes,
/// and answers and layers to a few evaluations. Throws DataError with file and line for a file beside metrics.jsonl
/// with a value of another type than expected.
nlohmann::json report_data(const std::vector<ReportedRun>& runs);

}  // namespace bert
