// Options of the verbs that read text of any kind.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "data/corpus/document_reader.h"

namespace bert {

/// Adds --layout, --text-field, --encoding and --skip-bad-lines. The default layout is that of `options`.
void add_text_options(CLI::App& app, ReaderOptions& options);

/// Says on standard error what the reader left out, a line for each kind. `program` begins the lines.
void say_left_out(const std::string& program, const ReaderOptions& options, const ReadStatistics& statistics);

}  // namespace bert
