// The sinks that a configuration asks for.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "app/config/run_config.h"
#include "app/report/sink.h"

namespace bert {

/// The sinks of config.report but the console, and that of Prometheus with config.report_port. `saved`: the step of
/// the checkpoint from which the run goes on; -1: it begins. Throws IoError.
std::vector<std::unique_ptr<Sink>> make_sinks(const RunConfig& config, int64_t saved);

}  // namespace bert
