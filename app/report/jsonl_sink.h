// The numbers of a run as JSON lines: metrics.jsonl, layers.jsonl and answers.jsonl.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

/// Writes into `run_directory`. The lines of steps after `saved`, that of the checkpoint from which the run goes on,
/// are dropped from all three files; -1: the run begins. layers.jsonl and answers.jsonl appear with their first line.
std::unique_ptr<Sink> make_jsonl_sink(const std::string& run_directory, int64_t saved);

}  // namespace bert
