// The events of a run as MLPerf's training benchmark logs them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

// Note [MLPerf's keys]
// run_directory/report/mlperf.log has lines ":::MLLOG {...}" with the keys of MLPerf's BERT: those that its compliance
// checker asks for, and the hyper-parameters under their names there. A log of bert is no submission: submission_org is
// "none" and submission_division "open", and cache_clear is false, as no cache of the system is emptied. eval_accuracy
// is the accuracy of the masked tokens; in fine-tuning the first metric of the task. epoch_num is the number of
// sequences, as in the BERT of MLPerf's reference, and samples_count the same. A run that goes on from a checkpoint
// continues the log: lines of later steps and the run_stop of the earlier process are dropped. Source: mlperf_logging
// of github.com/mlcommons/logging, version 4.1; rules 5.0.0, the last with BERT.

std::unique_ptr<Sink> make_mlperf_sink(const std::string& run_directory, int64_t saved);

}  // namespace bert
