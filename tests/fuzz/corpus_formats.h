// The formats of text that data/corpus and data/wikitext read.
#pragma once

#include <string>
#include <vector>

#include "tests/fuzz/mutation_formats.h"

namespace bert::testing {

/// Dumps of MediaWiki; gzip, bzip2, xz and zstd; JSON lines; text in other encodings.
std::vector<Format> corpus_formats(const std::string& directory);

}  // namespace bert::testing
