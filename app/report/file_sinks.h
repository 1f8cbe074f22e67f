// The numbers of a run for other programs: files that they read, and a port for Prometheus.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

/// The numbers as JSON lines: metrics.jsonl, layers.jsonl and answers.jsonl in `run_directory`. The lines of steps after `saved`, that of the checkpoint from which the run goes on,
/// are dropped from all three files; -1: the run begins. layers.jsonl and answers.jsonl appear with their first line.
std::unique_ptr<Sink> make_jsonl_sink(const std::string& run_directory, int64_t saved);

/// Writes event files into run_directory/report/tensorboard: one file for each process of the run, from its begin on.
/// Tags are those of transformers' TensorBoardCallback, train/KEY and eval/KEY: train/loss, train/learning_rate,
/// eval/loss, and at the end train/train_samples_per_second and its like; other figures of metrics.jsonl have tags of
/// the same form. The configuration is in args/text_summary, and the values of its fields are hyper-parameters of the
/// hparams plugin. `saved` is the step of the checkpoint from which the run goes on, -1 if it begins.
std::unique_ptr<Sink> make_tensorboard_sink(const std::string& run_directory, int64_t saved);

/// The numbers as NVIDIA's DLLogger writes them. Appends to run_directory/report/dllogger.json: lines "DLLL {...}" of the types LOG and METADATA, with the keys and
/// the order of keys of DLLogger's JSONStreamBackend. The configuration is the step "PARAMETER". An interval has the
/// step [STEP], with the keys of NVIDIA's run_pretraining.py (average_loss, learning_rate) and further figures of
/// metrics.jsonl; the end has the step [] and their e2e_train_time, training_sequences_per_second, final_loss and
/// raw_train_time. Lines of steps after `saved` are dropped, as from metrics.jsonl. Source: dllogger/logger.py of
/// github.com/NVIDIA/dllogger, version 1.0.
std::unique_ptr<Sink> make_dllogger_sink(const std::string& run_directory, int64_t saved);

// Note [MLPerf's keys]
// run_directory/report/mlperf.log has lines ":::MLLOG {...}" with the keys of MLPerf's BERT: those that its compliance
// checker asks for, and the hyper-parameters under their names there. A log of bert is no submission: submission_org is
// "none" and submission_division "open", and cache_clear is false, as no cache of the system is emptied. eval_accuracy
// is the accuracy of the masked tokens; in fine-tuning the first metric of the task. epoch_num is the number of
// sequences, as in the BERT of MLPerf's reference, and samples_count the same. A run that goes on from a checkpoint
// continues the log: lines of later steps and the run_stop of the earlier process are dropped. Source: mlperf_logging
// of github.com/mlcommons/logging, version 4.1; rules 5.0.0, the last with BERT.

/// The events of a run as MLPerf's training benchmark logs them: Note [MLPerf's keys].
std::unique_ptr<Sink> make_mlperf_sink(const std::string& run_directory, int64_t saved);

/// The figures are at /metrics on `port` of 127.0.0.1. `run` is the value of their label `run`. They are gauges in the
/// text format of Prometheus, version 0.0.4, with the values of the newest line: bert_train_KEY and bert_eval_KEY for
/// each number of metrics.jsonl, and those of one source of examples with the label `source`. A number that the newest
/// line lacks is left out. The port is open from the begin of the run to its end. Throws IoError if it is taken.
std::unique_ptr<Sink> make_prometheus_sink(const std::string& run, int64_t port);

}  // namespace bert
