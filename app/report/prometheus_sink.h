// The numbers of a run for Prometheus, on a port.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "app/report/sink.h"

namespace bert {

/// The figures are at /metrics on `port` of 127.0.0.1. `run` is the value of their label `run`. They are gauges in the
/// text format of Prometheus, version 0.0.4, with the values of the newest line: bert_train_KEY and bert_eval_KEY for
/// each number of metrics.jsonl, and those of one source of examples with the label `source`. A number that the newest
/// line lacks is left out. The port is open from the begin of the run to its end. Throws IoError if it is taken.
std::unique_ptr<Sink> make_prometheus_sink(const std::string& run, int64_t port);

}  // namespace bert
