// Options and summary of the actions of `bert data extract`.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "data/corpus/extracted_text.h"

namespace bert {

/// Adds --output and the options that decide which documents are dropped.
void add_extract_options(CLI::App& app, std::string& output, ExtractOptions& options);

/// Marks the directory as complete with `summary` and the counts of the writer, prints both as one line, and says on
/// standard error what was dropped. `seconds` is the time that the extraction took. Throws DataError if every document
/// was dropped.
void finish_extraction(ExtractedText& writer, nlohmann::ordered_json summary, double seconds);

}  // namespace bert
