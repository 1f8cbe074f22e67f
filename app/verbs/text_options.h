// Options of the verbs that read text of any kind.
#pragma once

#include <CLI/CLI.hpp>

#include "data/corpus/document_reader.h"

namespace bert {

/// Adds --layout, --text-field, --encoding and --skip-bad-lines. The default layout is that of `options`.
void add_text_options(CLI::App& app, ReaderOptions& options);

}  // namespace bert
