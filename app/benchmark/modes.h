// The modes of `bert benchmark`.
#pragma once

#include "app/benchmark/options.h"

namespace bert {

/// Times what `options` asks for and prints it. Returns false if a figure is below --fail-below of that of --compare.
/// Throws UsageError, DataError, InputMissing, ConfigError.
bool run_benchmark(const BenchmarkOptions& options);

}  // namespace bert
