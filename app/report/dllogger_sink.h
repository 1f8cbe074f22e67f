// The numbers of a run as NVIDIA's DLLogger writes them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

/// Appends to run_directory/report/dllogger.json: lines "DLLL {...}" of the types LOG and METADATA, with the keys and
/// the order of keys of DLLogger's JSONStreamBackend. The configuration is the step "PARAMETER". An interval has the
/// step [STEP], with the keys of NVIDIA's run_pretraining.py (average_loss, learning_rate) and further figures of
/// metrics.jsonl; the end has the step [] and their e2e_train_time, training_sequences_per_second, final_loss and
/// raw_train_time. Lines of steps after `saved` are dropped, as from metrics.jsonl. Source: dllogger/logger.py of
/// github.com/NVIDIA/dllogger, version 1.0.
std::unique_ptr<Sink> make_dllogger_sink(const std::string& run_directory, int64_t saved);

}  // namespace bert
