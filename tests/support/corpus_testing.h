// Files for tests of data/corpus.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/document_reader.h"
#include "data/io/files.h"

namespace bert::testing {

/// Runs a command of the shell, such as gzip or iconv. Returns false if it fails or is not installed.
inline bool run_shell(const std::string& command) {
  return std::system(("(" + command + ") 2>/dev/null").c_str()) == 0;
}

/// All documents of the files.
inline std::vector<std::string> documents_of(const std::vector<std::string>& paths, const ReaderOptions& options = {}) {
  DocumentReader reader(paths, options);
  std::vector<std::string> documents;
  for (std::string document; reader.next(document);) documents.push_back(document);
  return documents;
}

}  // namespace bert::testing
