// Options of the verbs that read text of any kind.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/corpus/input_files.h"

namespace bert {

/// Adds --layout, --text-field, --encoding and --skip-bad-lines. The default layout is that of `options`.
void add_text_options(CLI::App& app, ReaderOptions& options);

/// Adds --language, of prose whose sentences are found.
void add_language_option(CLI::App& app, std::string& language);

/// The layout of input whose layout is sentences if its names do not say otherwise. Files of JSON lines have prose. Throws
/// UsageError for these with `sentences` on the command line, and among other files.
Layout layout_of_names(const std::vector<InputFile>& files, bool sentences);

/// Says on standard error what the reader left out, a line for each kind. `program` begins the lines.
void say_left_out(const std::string& program, const ReaderOptions& options, const ReadStatistics& statistics);

}  // namespace bert
